// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/watch/systemd"
)

func (a *app) persistCommand() *cobra.Command {
	var remove bool
	var dir, listen string
	var waits bool
	cmd := &cobra.Command{
		Use:   "persist FILE | persist --remove DEV",
		Short: "Have systemd make the lanes of FILE at boot and keep them",
		Long: `Persist writes a systemd unit, niclane-watch@DEV.service, which runs niclane watch FILE
from the next boot on. The unit makes the lanes as soon as the device exists, and keeps
them. Persist itself starts nothing and changes no lane; systemctl starts the unit
earlier. The unit has only the rights that it needs: it sees no files in home
directories, /tmp or /run. Persist refuses FILE, or the program niclane, there.

With --remove, persist removes the unit of a device. The lanes stay until niclane
rollback. Persist neither overwrites nor removes a unit that was edited by hand.`,
		Args: cli.Exactly(1, "one lanes file, or with --remove a device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if remove {
				return a.unpersist(dir, args[0])
			}
			return a.persist(dir, args[0], listen, waits)
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the unit of a device")
	cmd.Flags().StringVar(&dir, "unit-dir", systemd.DefaultDir, "`directory` of the units")
	cmd.Flags().StringVar(&listen, "listen", "",
		"`address` at which the watch serves metrics and health, as for niclane watch --listen")
	cmd.Flags().BoolVar(&waits, "waits", false,
		"the watch also measures where requests to the lanes wait, as niclane watch --waits does")
	return cmd
}

// persistOutput is the JSON output of persist.
type persistOutput struct {
	Unit    string `json:"unit"`
	Path    string `json:"path"`
	Changed bool   `json:"changed"`
}

func (a *app) persist(dir, file, listen string, waits bool) error {
	r, err := readRequest(file)
	if err != nil {
		return err
	}
	if err := onlyRoots(r.config, "/etc/niclane"); err != nil {
		return err
	}
	u := systemd.Unit{Devices: r.file().Devices(), Config: r.config, Groups: a.needsGroups(r)}
	if len(u.Devices) == 0 {
		return fmt.Errorf("%s: names no device: give globals.dev", r.config)
	}
	if listen != "" {
		at, err := parseListen(listen)
		if err != nil {
			return cli.Usagef("persist: --listen %w", err)
		}
		if at != nil && at.Network == "unix" && !systemd.Writes(at.Address) {
			return fmt.Errorf("%s: %s can write only to /run/niclane and /var/lib/niclane: want a path there", at,
				systemd.Name(u.Devices[0]))
		}
		if waits && at == nil {
			return cli.Usagef("persist: %s", waitsNeedMetrics)
		}
		u.Options = []string{"--listen", listen}
	}
	if waits {
		u.Options = append(u.Options, "--waits")
	}
	if u.Command, err = os.Executable(); err != nil {
		return err
	}
	if err := errors.Join(u.Check(), onlyRoots(u.Command, "/usr/local/sbin")); err != nil {
		return err
	}
	path, changed, err := u.Write(dir)
	if err != nil {
		return err
	}
	name := systemd.Name(u.Devices[0])
	if a.JSON {
		return a.PrintJSON(persistOutput{name, path, changed})
	}
	if !changed {
		fmt.Fprintf(a.Stdout, "nothing to do: %s is there\n", path)
		return nil
	}
	fmt.Fprintf(a.Stdout, "%s written; at the next boot it makes the lanes of %s and keeps them\nnow: systemctl "+
		"daemon-reload && systemctl restart %s\n", path, r.config, name)
	return nil
}

// onlyRoots returns an error if users other than root can change the file at path or a directory
// above it, because root applies the file at boot. instead is a safe directory, which the error
// suggests.
func onlyRoots(path, instead string) error {
	for p := path; ; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		if err != nil {
			return err
		}
		owner := st.Sys().(*syscall.Stat_t).Uid
		sticky := st.IsDir() && st.Mode()&os.ModeSticky != 0
		if owner != 0 && owner != uint32(os.Geteuid()) || st.Mode()&0o022 != 0 && !sticky {
			return fmt.Errorf("%s: %s belongs to user %d and has mode %#o: other users could change what root does "+
				"at boot; put it where only root can write, such as %s",
				path, p, owner, st.Mode().Perm(), instead)
		}
		if p == "/" {
			return nil
		}
	}
}

func (a *app) unpersist(dir, device string) error {
	path, err := systemd.Remove(dir, device)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no such unit: nothing was persisted for %s", path, device)
	}
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(persistOutput{systemd.Name(device), path, true})
	}
	fmt.Fprintf(a.Stdout, "%s removed; its lanes stay until niclane rollback\nnow: systemctl stop %s && systemctl "+
		"daemon-reload\n", path, systemd.Name(device))
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/migrate/adqsetup"
	"github.com/niclane/niclane/watch/systemd"
)

// setUp implements the commands apply and create of adqsetup.
func (r *adqRun) setUp(ctx context.Context, name string, params []string, options []adqsetup.Option) error {
	req, err := r.request(name, params, options)
	if err != nil {
		return err
	}
	if err := cli.NeedRoot("adqsetup " + name); err != nil {
		return err
	}
	if r.verbose || r.debug {
		if _, err := r.Stdout.Write(req.text); err != nil {
			return err
		}
	}
	if r.dryRun {
		return r.preview(ctx, req)
	}
	req.planned = func(p *plan.Plan) error {
		if r.verbose || r.debug {
			plan.WriteText(r.Stdout, p.Steps)
		}
		return errors.Join(r.warnLifeline(p), r.writeLog(p))
	}
	if err := r.undoable(req); err != nil {
		return err
	}
	keep, err := stage(req)
	if err != nil {
		return err
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	return keep(r.applyOrAnew(ctx, req))
}

// undoable returns an error if the user gave --confirm-within and a systemd unit makes this
// device's lanes at boot. Without a confirmation, niclane would undo the lanes but not the lanes
// file, and the unit would make the lanes again.
func (r *adqRun) undoable(req *request) error {
	if r.within == 0 {
		return nil
	}
	dev := req.Intent.Group.Devices[0]
	path := filepath.Join(r.directory, systemd.Name(dev))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("adqsetup: --confirm-within: the unit %s makes the lanes of %s at boot. It would make these "+
			"lanes too, confirmed or not: niclane persist --remove %s removes the unit",
			path, dev, dev)
	}
	return nil
}

// request converts adqsetup's input to a lanes file. The request has the file's name, but the file
// does not exist yet: stage writes it.
func (r *adqRun) request(name string, params []string, options []adqsetup.Option) (*request, error) {
	in := adqsetup.Input{Name: name, Options: options, JSON: r.json}
	var err error
	switch {
	case name == "create":
		in.Words = append([]string{}, params...)
	default:
		file := "-"
		if len(params) > 0 {
			file = params[0]
		} else if cli.IsTerminal(r.Stdin) {
			return nil, cli.Usagef("adqsetup %s: no file, and standard input is a terminal: want an adqsetup file",
				name)
		}
		if in.Name, in.Text, err = r.readForeign(file); err != nil {
			return nil, err
		}
	}
	if in.Devices, err = possibleDevices("/sys/class/net"); err != nil {
		return nil, err
	}
	res, err := adqsetup.Make(in)
	if err != nil {
		return nil, err
	}
	text := []byte(res.Lanes)
	file, err := config.ParseFile("lanes.yaml", text)
	if err != nil {
		return nil, err
	}
	path, err := r.lanesFile(file.Intent.Group.Devices[0])
	return &request{File: file, text: text, config: path, origin: res}, err
}

// lanesFile returns the path of the lanes file for a device that was set up with adqsetup's command
// line.
func (r *adqRun) lanesFile(dev string) (string, error) {
	dir, err := filepath.Abs(r.StateDir)
	if err != nil {
		return "", err
	}
	if actual, err := filepath.EvalSymlinks(dir); err == nil {
		dir = actual
	}
	return filepath.Join(dir, "adqsetup", dev+".yaml"), nil
}

// stage writes the lanes file under a temporary name and returns the function keep. keep renames
// the file to its final name, or removes it if the apply has failed. So a full disk causes an error
// before any change, and the lanes file is never incomplete.
func stage(req *request) (keep func(failed error) error, err error) {
	dir := filepath.Dir(req.config) // in the state directory, where only root can write
	if err := privatedir.Make(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, filepath.Base(req.config)+".*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(req.text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return func(failed error) error {
		if failed == nil {
			if failed = os.Rename(f.Name(), req.config); failed == nil {
				return nil
			}
		}
		return errors.Join(failed, os.Remove(f.Name()))
	}, nil
}

// keep implements the command persist of adqsetup.
func (r *adqRun) keep(name string, params []string, options []adqsetup.Option) error {
	req, err := r.request(name, params, options)
	if err != nil {
		return err
	}
	if err := cli.NeedRoot("adqsetup persist"); err != nil {
		return err
	}
	write, err := stage(req)
	if err != nil {
		return err
	}
	if err := write(nil); err != nil {
		return err
	}
	return r.persist(r.directory, req.config, "", false)
}

// reset implements the command reset of adqsetup. It undoes apply and create for the given device,
// or for all devices.
func (r *adqRun) reset(ctx context.Context) error {
	if err := cli.NeedRoot("adqsetup reset"); err != nil {
		return err
	}
	dev, _ := r.flags.GetString("dev")
	file, err := r.lanesFile(dev)
	if err != nil {
		return err
	}
	return r.rollback(ctx, engine.RollbackOptions{Choose: func(js []*journal.Journal) ([]*journal.Journal, error) {
		var ours []*journal.Journal
		for _, j := range js {
			h := j.Head()
			switch made := filepath.Dir(h.Config) == filepath.Dir(file); {
			case made && (dev == "" || h.Config == file):
				ours = append(ours, j)
			case dev != "" && slices.Contains(h.Devices, dev):
				return nil, fmt.Errorf("adqsetup reset: the lanes of %s come from %s, not from adqsetup's "+
					"command line: "+
					"niclane rollback %s undoes them", dev, h.Config, dev)
			}
		}
		return ours, nil
	}})
}

// writeLog writes the plan's command lines as a script into the file of --log, as adqsetup does.
func (r *adqRun) writeLog(p *plan.Plan) error {
	if r.log == "" {
		return nil
	}
	var b bytes.Buffer
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "# %s\n", s.Reason)
		for _, line := range s.Commands() {
			fmt.Fprintln(&b, line)
		}
	}
	return os.WriteFile(r.log, b.Bytes(), 0o644)
}

// examples writes adqsetup's example files into a new directory. Beside each, it writes the lanes
// file to which the example converts.
func (r *adqRun) examples(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("adqsetup examples: %s exists already; want a working directory without it", dir)
	}
	if err != nil {
		return err
	}
	for _, e := range adqsetup.Examples() {
		res, err := adqsetup.Convert(e.Name, "", e.Text)
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{e.Name: e.Text,
			strings.TrimSuffix(e.Name, ".conf") + ".yaml": []byte(res.Lanes)} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(r.Stdout, "%s written: .conf for niclane adqsetup apply, .yaml for niclane apply\n",
		cli.Plural(len(adqsetup.Examples()), "example"))
	return nil
}

// possibleDevices returns the devices that the user may mean if the command line names none.
// Devices with one receive queue are left out. If there are devices of ice, adqsetup's driver, it
// returns only these. Otherwise, if there are cards (devices with a hardware driver), it returns
// only these. Otherwise it returns all.
func possibleDevices(sys string) ([]string, error) {
	entries, err := os.ReadDir(sys)
	if err != nil {
		return nil, err
	}
	var ice, cards, others []string
	for _, e := range entries {
		dir := filepath.Join(sys, e.Name())
		queues, err := filepath.Glob(filepath.Join(dir, "queues", "rx-*"))
		if err != nil || len(queues) < 2 || e.Name() == "lo" {
			continue
		}
		driver, err := os.Readlink(filepath.Join(dir, "device", "driver"))
		switch {
		case err == nil && filepath.Base(driver) == "ice":
			ice = append(ice, e.Name())
		case err == nil:
			cards = append(cards, e.Name())
		default:
			others = append(others, e.Name())
		}
	}
	for _, found := range [][]string{ice, cards} {
		if len(found) > 0 {
			return found, nil
		}
	}
	return others, nil
}

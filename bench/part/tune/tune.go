// SPDX-License-Identifier: Apache-2.0

// Package tune tunes a host for a server without lanes, as an experienced administrator would:
// sysctls of the network, symmetric queues, NAPI threads. It keeps the settings for as long as
// it runs and restores the previous ones. It touches nothing outside /proc/sys/net and the
// device's own files.
package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Config is the configuration of Run, for the network namespace in which it runs.
type Config struct {
	// Sysctls are set by name, below net.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Device is the network device of Symmetric and NAPIThreads. With Symmetric, a connection
	// whose packets arrive on receive queue i sends on transmit queue i (xps_rxqs). With
	// NAPIThreads, kernel threads poll the device.
	Device      string `json:"device"`
	Symmetric   bool   `json:"symmetricQueues,omitempty"`
	NAPIThreads bool   `json:"napiThreads,omitempty"`
	// Check makes Run only check whether all settings have these values.
	Check bool `json:"check,omitempty"`

	root string // root of the file system; tests use another
}

// Result has the previous values.
type Result struct {
	Before map[string]string `json:"before"` // by file
}

// Valid names of a sysctl and of a network device.
var (
	sysctl = regexp.MustCompile(`^net\.[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	device = regexp.MustCompile(`^[^/\s.][^/\s]{0,14}$`)
)

// A setting is a file and its wanted content.
type setting struct{ path, value string }

// settings returns the settings in the order in which they are made.
func (c Config) settings() ([]setting, error) {
	var out []setting
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		if !sysctl.MatchString(name) {
			return nil, fmt.Errorf("sysctl %q: want one below net", name)
		}
		out = append(out, setting{filepath.Join(c.root, "/proc/sys", strings.ReplaceAll(name, ".", "/")),
			c.Sysctls[name]})
	}
	if !c.Symmetric && !c.NAPIThreads {
		return out, nil
	}
	if !device.MatchString(c.Device) {
		return nil, fmt.Errorf("device %q: want the name of a network device", c.Device)
	}
	dir := filepath.Join(c.root, "/sys/class/net", c.Device)
	if c.NAPIThreads {
		out = append(out, setting{filepath.Join(dir, "threaded"), "1"})
	}
	if c.Symmetric {
		queues, err := filepath.Glob(filepath.Join(dir, "queues/tx-*/xps_rxqs"))
		if err != nil {
			return nil, err
		}
		if len(queues) == 0 {
			return nil, fmt.Errorf("%s: no transmit queue that takes xps_rxqs", c.Device)
		}
		for _, path := range queues {
			n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "tx-"))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			out = append(out, setting{path, mask(n)})
		}
	}
	return out, nil
}

// mask returns the bit mask of one queue as the kernel writes it, in words of 32 bits.
func mask(queue int) string {
	return strconv.FormatUint(1<<(queue%32), 16) + strings.Repeat(",00000000", queue/32)
}

// Run makes all settings, waits for ctx to end and restores the previous values.
func Run(ctx context.Context, c Config) (r Result, err error) {
	all, err := c.settings()
	if err != nil {
		return r, err
	}
	if c.Check {
		return r, check(all)
	}
	r.Before = map[string]string{}
	var made []setting
	defer func() {
		for _, s := range slices.Backward(made) {
			err = errors.Join(err, write(s.path, r.Before[s.path]))
		}
	}()
	for _, s := range all {
		before, err := os.ReadFile(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("%s: this host or network namespace has no such setting", s.path)
		}
		if err != nil {
			return r, err
		}
		r.Before[s.path] = strings.TrimSpace(string(before))
		made = append(made, s)
		if err := write(s.path, s.value); err != nil {
			return r, err
		}
	}
	<-ctx.Done()
	return r, nil
}

func check(all []setting) error {
	for _, s := range all {
		have, err := os.ReadFile(s.path)
		if err != nil {
			return err
		}
		if got := normal(string(have)); got != normal(s.value) {
			return fmt.Errorf("%s: want %s, have %s", s.path, s.value, got)
		}
	}
	return nil
}

// normal returns a value in a form that can be compared. 00,00000001 and 1 are the same mask. The
// amount of white space between the numbers of a sysctl does not matter.
func normal(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.TrimLeft(strings.ReplaceAll(s, ",", ""), "0")
}

func write(path, value string) error {
	if err := os.WriteFile(path, []byte(value+"\n"), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}

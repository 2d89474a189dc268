// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch/host"
)

// maxConfig is far above any sensible file; it keeps a wrong path (a device, a
// log) from being read into memory.
const maxConfig = 1 << 20

// readConfig reads and parses a lanes file.
func readConfig(path string) (*config.File, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return parseConfig(path, f)
}

// parseConfig reads and parses what path has, or would have.
func parseConfig(path string, r io.Reader) (*config.File, []byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxConfig {
		return nil, nil, fmt.Errorf("%s: larger than %d bytes, not a lanes file", path, maxConfig)
	}
	file, err := config.ParseFile(path, text)
	return file, text, err
}

// observeFor reads what planning in needs to know.
func (a *app) observeFor(ctx context.Context, in *intent.Intent) (*device.State, error) {
	o := observe.Options{Devices: groupOf(in), Cgroups: host.Groups(in), RunDir: a.runDir, Remember: a.runDir}
	st, err := observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		// Planning says which device is missing, in which line, and
		// which ones there are.
		o.Devices = nil
		return observe.Observe(ctx, o)
	}
	return st, err
}

// observeLeft adds to a state the devices and control groups that an earlier apply
// of the same file had and the file has no more, or its bond: what it wrote there
// goes back.
func (a *app) observeLeft(ctx context.Context, in *intent.Intent, st *device.State, of ofConfig) (*device.State, error) {
	left := slices.DeleteFunc(slices.Clone(of.devices), func(name string) bool { return st.Device(name) != nil })
	groups := host.Groups(in)
	more := slices.DeleteFunc(of.groups, func(g string) bool { return slices.Contains(groups, g) })
	if len(left) == 0 && len(more) == 0 {
		return st, nil
	}
	o := observe.Options{Devices: append(left, groupOf(in)...), Cgroups: append(groups, more...), RunDir: a.runDir, Remember: a.runDir}
	st, err := observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) { // one of them is gone, and what was on it
		o.Devices = nil
		return observe.Observe(ctx, o)
	}
	return st, err
}

func groupOf(in *intent.Intent) []string {
	if in.Group.Bond != "" {
		return []string{in.Group.Bond}
	}
	return in.Group.Devices
}

// linksOf are the lanes' devices that are here, by what identifies them.
func linksOf(in *intent.Intent, st *device.State) []device.Link {
	var out []device.Link
	for _, name := range groupOf(in) {
		if d := st.Device(st.Resolve(name)); d != nil {
			out = append(out, d.Link())
		}
	}
	return out
}

// located adds file and line to the planner's errors.
func located(err error, locate func(path string) (name string, line int, at string)) error {
	var es plan.Errors
	if !errors.As(err, &es) {
		return err
	}
	lines := make([]string, len(es))
	for i, e := range es {
		name, line, at := locate(e.Path)
		e.Path = at
		lines[i] = fmt.Sprintf("%s:%d: %s", name, line, e)
	}
	return &locatedErrors{strings.Join(lines, "\n"), es}
}

// locatedErrors are the planner's errors with files and lines.
type locatedErrors struct {
	text string
	es   plan.Errors
}

func (e *locatedErrors) Error() string { return e.text }

func (e *locatedErrors) Unwrap() error { return e.es }

// configName is how a config is recorded: by absolute path, symbolic links
// resolved, so that one file is one config however it was named.
func configName(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// needRoot refuses early, before anything has been read or locked.
func needRoot(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: not root: it reads and writes kernel state (try sudo)", what)
	}
	return nil
}

// printJSON writes v for programs.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// prefixed gives every line of an error the command's name, unless it starts
// with a position in a file, which editors want first.
func prefixed(err error) string {
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for i, l := range lines {
		if !positioned(l) {
			lines[i] = "niclane: " + l
		}
	}
	return strings.Join(lines, "\n")
}

func positioned(line string) bool {
	_, rest, ok := strings.Cut(line, ":")
	return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
)

// groupName is the start of the path of a session's control group. The session's ID follows.
const groupName = "/niclane-bench-"

// A group is the control group of a session's jobs that are members of a lane. It has a directory
// in each hierarchy that lanes use: the unified one, and version 1's with cpuset and net_prio.
type group struct {
	Path string   `json:"path,omitempty"`
	Dirs []string `json:"dirs,omitempty"`
	// Enabled is the root of the unified hierarchy if make enables cpuset below it, else "".
	Enabled string `json:"enabled,omitempty"`
}

// of returns the control group directories that a job joins. A request with a group name gets a
// subgroup of that name, limited to the request's processors and memory nodes.
func (g group) of(r Request) ([]string, error) {
	if r.Group == "" {
		return g.Dirs, nil
	}
	var out []string
	for _, dir := range g.Dirs {
		below, err := cgroup.Below(dir, r.Group, r.CPUs, r.Mems)
		if err != nil {
			return nil, err
		}
		out = append(out, below)
	}
	return out, nil
}

// planGroup returns the group that make will create. It is empty if the host has no hierarchy
// that lanes use.
func planGroup(session string) (group, error) {
	have, err := cgroup.Find(nil)
	if err != nil {
		return group{}, fmt.Errorf("control groups: %w", err)
	}
	g := group{Path: groupName + session}
	for _, root := range []string{have.V2, have.V1["cpuset"], have.V1["net_prio"]} {
		if dir := path.Join(root, g.Path); root != "" && !slices.Contains(g.Dirs, dir) {
			g.Dirs = append(g.Dirs, dir)
		}
	}
	if len(g.Dirs) == 0 {
		return group{}, nil
	}
	if have.V2 != "" && slices.Contains(have.V2Controllers, "cpuset") {
		b, err := os.ReadFile(filepath.Join(have.V2, "cgroup.subtree_control"))
		if err != nil {
			return group{}, err
		}
		if !slices.Contains(strings.Fields(string(b)), "cpuset") {
			g.Enabled = have.V2
		}
	}
	return g, nil
}

func (g group) make() error {
	if g.Enabled != "" {
		if err := os.WriteFile(filepath.Join(g.Enabled, "cgroup.subtree_control"), []byte("+cpuset"), 0); err != nil {
			return fmt.Errorf("enable cpuset: %w", err)
		}
	}
	for _, dir := range g.Dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A new cpuset of version 1 is empty, and no process can join it. Copy the parent's values.
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} {
			above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
			if errors.Is(err, fs.ErrNotExist) { // cpuset is not in this hierarchy, or the parent is the unified root
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), above, 0)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes the group after its processes have ended.
func (g group) remove() error {
	var errs []error
	for _, dir := range g.Dirs {
		errs = append(errs, cgroup.Remove(dir))
	}
	if g.Enabled != "" {
		err := os.WriteFile(filepath.Join(g.Enabled, "cgroup.subtree_control"), []byte("-cpuset"), 0)
		if err != nil && !errors.Is(err, unix.EBUSY) { // EBUSY: another program uses cpuset
			errs = append(errs, fmt.Errorf("disable cpuset: %w", err))
		}
	}
	return errors.Join(errs...)
}

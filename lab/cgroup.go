// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/device"
)

// A group is the control group of the SUT's application.
type group struct {
	Path string `json:"path"` // for example "/niclane-lab-sut"
	Dir  string `json:"dir"`  // in the hierarchy that has the cpuset controller
	V1   bool   `json:"v1"`
	// Enable is set if the lab enables the cpuset controller of a version 2 hierarchy: to the root
	// directory of the hierarchy.
	Enable string `json:"enable,omitempty"`
	CPUs   string `json:"cpus"`
}

// planCgroup returns the group that the method add will make. If no hierarchy has the cpuset
// controller, it returns an empty group.
func planCgroup(c Config) (group, error) {
	have, err := cgroup.Find(nil)
	if err != nil {
		return group{}, fmt.Errorf("control groups: %w", err)
	}
	g := group{Path: "/" + c.Name + "-lab-sut", CPUs: device.FormatCPUList(c.SUTCPUs)}
	g.Dir = have.CpusetDir(g.Path)
	if g.Dir == "" {
		return group{}, nil
	}
	g.V1 = have.V1["cpuset"] != ""
	if !g.V1 {
		b, err := os.ReadFile(filepath.Join(have.V2, "cgroup.subtree_control"))
		if err != nil {
			return group{}, err
		}
		if !slices.Contains(strings.Fields(string(b)), "cpuset") {
			g.Enable = have.V2
		}
	}
	return g, nil
}

func (g group) add() error {
	if g.Dir == "" {
		return nil
	}
	if g.Enable != "" {
		if err := os.WriteFile(filepath.Join(g.Enable, "cgroup.subtree_control"), []byte("+cpuset"), 0); err != nil {
			return fmt.Errorf("enable cpuset: %w", err)
		}
	}
	if err := os.Mkdir(g.Dir, 0o755); err != nil {
		return err
	}
	if g.V1 {
		// In version 1, a new cpuset has no memory nodes, and no process can enter it without them.
		mems, err := os.ReadFile(filepath.Join(filepath.Dir(g.Dir), "cpuset.mems"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(g.Dir, "cpuset.mems"), mems, 0); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(g.Dir, "cpuset.cpus"), []byte(g.CPUs), 0)
}

// remove removes the group. The caller must have ended the group's processes.
func (g group) remove() error {
	if g.Dir == "" {
		return nil
	}
	if err := cgroup.Remove(g.Dir); err != nil {
		return err
	}
	if g.Enable != "" {
		err := os.WriteFile(filepath.Join(g.Enable, "cgroup.subtree_control"), []byte("-cpuset"), 0)
		// EBUSY: another program uses the controller now, so it stays enabled. This is no error.
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("disable cpuset: %w", err)
		}
	}
	return nil
}

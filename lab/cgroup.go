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
	Path string `json:"path"` // "/niclane-lab-sut"
	Dir  string `json:"dir"`  // in the hierarchy that carries cpuset
	V1   bool   `json:"v1"`
	// Enable is the hierarchy's root directory (version 2) if the cpuset
	// controller was not enabled below it before.
	Enable string `json:"enable,omitempty"`
	CPUs   string `json:"cpus"`
}

// planCgroup decides what add will make. Without a hierarchy that has cpuset
// there is no group.
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
		// A new version 1 cpuset is empty, and no process may enter it.
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

// remove removes the group. Its processes have been ended.
func (g group) remove() error {
	if g.Dir == "" {
		return nil
	}
	if err := cgroup.Remove(g.Dir); err != nil {
		return err
	}
	if g.Enable != "" {
		err := os.WriteFile(filepath.Join(g.Enable, "cgroup.subtree_control"), []byte("-cpuset"), 0)
		// EBUSY: somebody else has come to use it
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("disable cpuset: %w", err)
		}
	}
	return nil
}

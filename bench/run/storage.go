// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/lab"
)

// storageOn returns the directories of a host for the storage of a split server, in the order
// of their nodes.
func (s *agentSite) storageOn(host string) (dirs []string) {
	if host != lab.SUT || s.e.Server.Split == "" {
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(s.h.SUT.Storage)) {
		dirs = append(dirs, s.h.SUT.Storage[node])
	}
	return dirs
}

// storage returns the directories that the SUT's agent has made in those of storageOn, by NUMA node.
func (s *agentSite) storage() map[int]string {
	made := s.agents[lab.SUT].Host.Storage
	out := map[int]string{}
	for i, node := range slices.Sorted(maps.Keys(s.h.SUT.Storage)) {
		if i < len(made) {
			out[node] = made[i]
		}
	}
	return out
}

// store gives each instance the directory of its node. drives says on which node the drive of each
// directory is. Without directories, store does nothing.
func (d *division) store(dirs map[int]string, drives []numa.Storage) error {
	if len(dirs) == 0 {
		return nil
	}
	var without []string
	for i := range d.instances {
		x := &d.instances[i]
		dir, ok := dirs[x.Node]
		if !ok {
			without = append(without, fmt.Sprint(x.Node))
			continue
		}
		x.Storage = []string{dir}
		on := -1
		if i := slices.IndexFunc(drives, func(s numa.Storage) bool { return s.Path == dir }); i >= 0 {
			on = drives[i].Node
		}
		switch {
		case on < 0:
			d.notef("storage %s of node %d: not on a drive of one known NUMA node", filepath.Dir(dir), x.Node)
		case on != x.Node:
			d.notef("storage %s of node %d: its drive is on node %d, reads cross from there",
				filepath.Dir(dir), x.Node, on)
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("sut.storage of the hosts file has nothing for node %s, want a directory for each node "+
			"that has an instance", strings.Join(without, ", "))
	}
	for _, node := range slices.Sorted(maps.Keys(dirs)) {
		if !slices.ContainsFunc(d.instances, func(x split.Instance) bool { return x.Node == node }) {
			d.notef("storage %s of node %d: there is no instance", filepath.Dir(dirs[node]), node)
		}
	}
	return nil
}

func (d *division) notef(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

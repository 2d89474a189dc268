// SPDX-License-Identifier: Apache-2.0

// Package led has connections to a port that several instances of a server
// listen at go to the instance of the NUMA node where they arrive, or all to
// one of them, and counts how they went. What it sets lasts as long as the
// listeners, and needs no process.
package led

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/app"
)

// Config is what Run does.
type Config struct {
	Port uint16 `json:"port"`
	// Nodes are the processors of each instance's node, Others those of none.
	Nodes  [][]int `json:"nodes,omitempty"`
	Others []int   `json:"others,omitempty"`
	// Only is the instance that all connections go to, from 1; 0: each to that
	// of its node.
	Only int `json:"only,omitempty"`
	// Patience is how long instances may take to listen, ns; 0: they do.
	Patience int64 `json:"patienceNs,omitempty"`
	// Count says how connections went, and sets nothing.
	Count bool `json:"count,omitempty"`
	// Group is the control group of the instances' processes, or above them; "":
	// they are those of this process's network namespace.
	Group string `json:"-"`
}

// Result says how connections go, or went since they are led.
type Result struct {
	// Listeners of each instance.
	Listeners []int `json:"listeners,omitempty"`
	// Arrival counts connections that went to the instance told by where they
	// arrived, Hash those that the kernel's hash gave to any.
	Arrival uint64 `json:"arrival"`
	Hash    uint64 `json:"hash"`
}

// again is how soon it looks again for listeners that are not there yet.
const again = 50 * time.Millisecond

// Run leads, or counts.
func Run(ctx context.Context, c Config) (r Result, err error) {
	ports := []uint16{c.Port}
	if c.Count {
		n, err := app.Leads(ports)
		return Result{Arrival: n.Queue + n.CPU, Hash: n.Hash}, err
	}
	if c.Only < 0 || c.Only > len(c.Nodes) {
		return r, fmt.Errorf("only %d of %d instances", c.Only, len(c.Nodes))
	}
	leading := app.Leading{Ports: ports, Nodes: c.Nodes, Others: c.Others, Only: c.Only - 1, Processes: c.processes}
	deadline := time.NewTimer(time.Duration(c.Patience))
	defer deadline.Stop()
	for {
		groups, err := app.Lead(leading)
		if err == nil {
			return Result{Listeners: c.count(groups)}, nil
		}
		select {
		case <-time.After(again):
		case <-deadline.C:
			return r, err
		case <-ctx.Done():
			return r, errors.Join(err, context.Cause(ctx))
		}
	}
}

// count is the number of each instance's listeners.
func (c Config) count(groups []app.ListenGroup) []int {
	out := make([]int, len(c.Nodes))
	for _, g := range groups {
		for _, l := range g.Listeners {
			if i := app.HomeOf(l, c.Nodes); i >= 0 {
				out[i]++
			}
		}
	}
	return out
}

// processes are those that may be the instances'.
func (c Config) processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if there, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/net")); err != nil || there != here {
			continue // or it has ended
		}
		if c.grouped(pid) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// grouped reports whether a process is in the group in any hierarchy (cgroups(7)).
// Its environment would not do: servers write their titles over it.
func (c Config) grouped(pid int) bool {
	if c.Group == "" {
		return true
	}
	// One that has ended cannot be read.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && below(string(text), c.Group)
}

func below(membership, group string) bool {
	for line := range strings.Lines(membership) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && (f[2] == group || strings.HasPrefix(f[2], group+"/")) {
			return true
		}
	}
	return false
}

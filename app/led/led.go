// SPDX-License-Identifier: Apache-2.0

// Package led distributes the connections to a port over several instances of a server. Each
// connection goes to the instance on the NUMA node where it arrives, or all connections go to one
// instance. The package also counts how instances were chosen. Its settings last as long as the
// listeners and need no process.
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

// Config is the input of Run.
type Config struct {
	Port uint16 `json:"port"`
	// Nodes has the processors of each instance's node. Others has the processors that are on no
	// instance's node.
	Nodes  [][]int `json:"nodes,omitempty"`
	Others []int   `json:"others,omitempty"`
	// Only is the number, from 1, of the instance that gets all connections. 0: each instance gets the
	// connections that arrive on its node.
	Only int `json:"only,omitempty"`
	// Patience is how long Run waits for all instances to listen, in ns. With 0, it does not wait.
	Patience int64 `json:"patienceNs,omitempty"`
	// If Count is true, Run counts connections and changes nothing.
	Count bool `json:"count,omitempty"`
	// Group is a control group that contains the instances' processes. "" means all processes in this
	// process's network namespace.
	Group string `json:"-"`
}

// Result is the output of Run.
type Result struct {
	// Listeners is the number of listeners of each instance.
	Listeners []int `json:"listeners,omitempty"`
	// Arrival counts connections whose instance was chosen by queue or processor. Hash counts those
	// whose instance was chosen by the kernel's hash.
	Arrival uint64 `json:"arrival"`
	Hash    uint64 `json:"hash"`
}

// again is how long Run waits between two looks for missing listeners.
const again = 50 * time.Millisecond

// Run distributes the connections, or counts them if c.Count is true.
func Run(ctx context.Context, c Config) (r Result, err error) {
	ports := []uint16{c.Port}
	if c.Count {
		n, err := app.Leads(ports)
		return Result{Arrival: n.Queue + n.CPU, Hash: n.Hash}, err
	}
	if c.Only < 0 || c.Only > len(c.Nodes) {
		return r, fmt.Errorf("only: found instance %d of %d", c.Only, len(c.Nodes))
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

// count returns the number of listeners of each instance.
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

// processes returns the PIDs of the processes that may belong to the instances.
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
			continue // another namespace, or the process has ended
		}
		if c.grouped(pid) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// grouped reports whether a process is in Group, in any hierarchy (cgroups(7)). The environment
// cannot show to which instance a process belongs, because servers overwrite it with a title.
func (c Config) grouped(pid int) bool {
	if c.Group == "" {
		return true
	}
	// If the process has ended, ReadFile fails.
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

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/nodes"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lab"
)

// What follows makes the lab hosts: they share a file system, a clock and this
// process's fate.

func (s *labSite) seats(n int) []seat {
	var out []seat
	for i := range n {
		out = append(out, seat{lab.Client, place(s.e.Placement.Generator, i, n)})
	}
	return out
}

func (s *labSite) addressOf(host string) string { return s.lab.Config.IPv4(host).String() }

func (s *labSite) link() (int64, int) { return int64(s.lab.Config.LinkRate), s.lab.Config.MTU }

func (s *labSite) names() map[string]string {
	c := s.lab.Config
	return map[string]string{
		experiment.NameDevice: lab.Port, experiment.NameCgroup: s.lab.Cgroup,
		experiment.NameLink: y.BitsText(c.LinkRate),
		experiment.NameCPUs: cpusText(s.e.Placement.Server.CPUs, c.SUTCPUs),
	}
}

func (s *labSite) scratchOf(string) string { return filepath.Join(s.dir, "scratch") }

func (s *labSite) put(_ context.Context, host, name string, text []byte, private bool) error {
	path := filepath.Join(s.scratchOf(host), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if s.e.Server.User != "" {
		if err := s.writable(filepath.Dir(path)); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o644)
	if private {
		mode = 0o600
	}
	if err := os.WriteFile(path, text, mode); err != nil || !private || s.e.Server.User == "" {
		return err
	}
	return s.give(path)
}

// writable makes directories below scratch as scratch itself is.
func (s *labSite) writable(dir string) error {
	for ; dir != s.scratchOf(lab.SUT); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
			return err
		}
	}
	return nil
}

// give makes a private file the server's user's.
func (s *labSite) give(path string) error {
	name, _, _ := strings.Cut(s.e.Server.User, ":")
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("server.user: %w", err)
	}
	id, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	return os.Chown(path, id, -1)
}

func (s *labSite) find(_ context.Context, _, program string) (path, version string, err error) {
	if path, err = exec.LookPath(program); err != nil {
		return "", "", err
	}
	return path, versionOf(path), nil
}

func (s *labSite) launch(ctx context.Context, l launch) (task, error) {
	o := lab.Options{CPUs: l.CPUs, FIFO: l.FIFO, Mems: l.mems, Group: l.group, Cgroup: l.member &&
		s.lab.CgroupDir != "", Niclane: s.self}
	argv := l.argv
	if l.part != "" {
		// Its threads take SCHED_FIFO themselves: a whole Go process under it
		// on one processor starves the thread that it waits for.
		o.FIFO = 0
		argv = []string{s.self, "internal-" + l.part}
	}
	cmd, err := s.lab.Command(ctx, l.host, o, argv...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.what, err)
	}
	if l.part == "" {
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, l.env...)
	}
	p, err := start(l.what, cmd, l.config)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *labSite) ask(ctx context.Context, host, address string, q question) error {
	return ask(ctx, s.dial(host), address, q)
}

// dial returns a dialer from a host.
func (s *labSite) dial(host string) dialer {
	return func(ctx context.Context, address string) (conn net.Conn, err error) {
		err = s.lab.Do(host, func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return err
		})
		return conn, err
	}
}

// served reads by this process: there are two readings for each window.
// Aerospike's client dials from threads of its own, which are not on the host.
func (s *labSite) served(ctx context.Context, config load.Config) (c counters.Counters, err error) {
	if config.Protocol == load.Aerospike {
		return readServed(ctx, s, config)
	}
	err = s.lab.Do(lab.SUT, func() error {
		c, err = counters.Read(ctx, config)
		return err
	})
	return c, err
}

// nodes are this machine's. The lab's port is on none.
func (s *labSite) nodes(ctx context.Context) (nodes.Machine, []int, error) {
	m, err := nodes.Run(ctx, nodes.Config{})
	m.Devices = []numa.Device{{Name: lab.Port, Node: -1}}
	return m, s.lab.Config.SUTCPUs, err
}

func (s *labSite) counting(_ context.Context, processes map[string]task) (func(context.Context) (machine.Diff, error),
	error) {
	c := machine.Config{Device: lab.Port, Polls: s.polls, Processes: map[string]int{}}
	for name, t := range processes {
		if p, ok := t.(*process); ok {
			c.Processes[name] = p.cmd.Process.Pid
		}
	}
	take := func() (snap *machine.Snapshot, err error) {
		err = s.lab.Do(lab.SUT, func() error {
			snap, err = machine.Take(c)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("the machine's counters: %w", err)
		}
		return snap, nil
	}
	before, err := take()
	if err != nil {
		return nil, err
	}
	return func(context.Context) (machine.Diff, error) {
		after, err := take()
		if err != nil {
			return machine.Diff{}, err
		}
		return after.Since(before)
	}, nil
}

// clocks need no reading: the hosts have one.
func (s *labSite) clocks(context.Context) (func(context.Context) (axis, error), error) {
	return func(context.Context) (axis, error) { return axis{}, nil }, nil
}

func (s *labSite) lost() <-chan struct{} { return nil }

func (s *labSite) gone() error { return nil }

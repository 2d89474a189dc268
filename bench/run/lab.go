// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lab/virtual"
	"github.com/niclane/niclane/lane/device"
)

// A labSite is an agentSite whose hosts are those of package lab, with an agent on each. It adds
// what only a single machine has: the switch, the queues between the hosts, one clock for all hosts,
// and the machine's own power.
type labSite struct {
	*agentSite
	file *experiment.File
	self string // path of niclane-bench

	reservation *reservation
	lab         *lab.Lab
	dir         string // directory of the run, with the agents' files and journals
	serving     []*labAgent
}

// InLab returns the site of an experiment in the lab. version is the version of this niclane. The
// agents are processes of niclane-bench, whose path is self.
func InLab(f *experiment.File, version, self string) Site {
	s := &labSite{agentSite: newAgentSite(f, &experiment.Hosts{}, version), file: f, self: self}
	s.on, s.dialer = s, s.enter
	return s
}

func (s *labSite) Up(ctx context.Context, r *result.Result) (err error) {
	if key := s.e.Lab.Cost(); key != "" && !virtual.Here() {
		return s.file.Problem("lab."+key, "found in real time, where work takes the time that it takes; want "+
			"--virtual, or no "+key)
	}
	var left string
	if s.reservation, left, err = reserveLab(reservations, s.e.Lab.Name); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if left != "" {
		if err := errors.Join(lab.Down(ctx, s.e.Lab.Name), tidy(left)); err != nil {
			return fmt.Errorf("remove the rest of a killed run: %w", err)
		}
	}
	if err := s.reservation.write(s.dir); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	if err := s.power.open(ctx, s.e.Power, power.Open, r); err != nil {
		return err
	}
	x := s.e.Lab
	sut, others, err := s.labProcessors()
	if err != nil {
		return err
	}
	s.lab, err = lab.Up(ctx, lab.Config{
		Name: x.Name, Card: x.Card, Queues: x.Queues, LinkRate: x.LinkRate, LinkBurst: x.LinkBurst,
		SwitchBuffer: x.SwitchBuffer, SwitchMark: x.SwitchMark, SwitchFirst: dscps(x.SwitchFirst),
		Delay: x.Delay, PacketCost: x.PacketCost, WakeupCost: x.WakeupCost,
		Addresses: addresses(x.Addresses), Frames: x.Frames,
		Ring: x.Ring, Rules: x.Rules, Contexts: x.Contexts, MTU: x.MTU, NoiseSegment: x.NoiseSegment,
		SUTCPUs: sut, OtherCPUs: others,
	})
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w; niclane lab up has started it: niclane lab down --name %s ends it", err, x.Name)
	}
	if err != nil {
		return err
	}
	if err := s.serveAll(); err != nil {
		return err
	}
	if err := s.connect(ctx, r); err != nil {
		return err
	}
	// The agents have reported the speed of a veth. Replace it by the lab's link rate.
	for _, c := range s.agents {
		if c.Host.Device != nil {
			c.Host.Device.Speed = s.lab.Config.LinkRate
		}
	}
	s.describe(r)
	return nil
}

// addresses parses addresses that package experiment has checked.
func addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// dscps parses DSCPs that package experiment has checked.
func dscps(names []string) (out []int) {
	for _, name := range names {
		n, err := device.ParseDSCP(name)
		if err != nil {
			panic(err)
		}
		out = append(out, n)
	}
	return out
}

// open lets the servers' user enter s.dir. It returns an error if that user cannot enter a
// directory above it.
func (s *labSite) open() error {
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return err
	}
	for dir := filepath.Dir(s.dir); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if st.Mode()&1 == 0 {
			return fmt.Errorf("TMPDIR %s: user %s cannot enter %s (mode %04o), want a directory that every user "+
				"can enter, as /tmp is", os.TempDir(), s.user(), dir, st.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// HostNoise measures the noise of this machine, on which all hosts of the lab are.
func (s *labSite) HostNoise(ctx context.Context, ns int64) (hiccup.Result, error) {
	return hiccup.Run(ctx, hiccup.Config{Duration: ns})
}

func (s *labSite) SetSwitchBuffer(bytes int64) error {
	if bytes == 0 {
		bytes = int64(s.lab.Config.SwitchBuffer)
	}
	return s.lab.SetSwitchBuffer(int(bytes))
}

func (s *labSite) Down(ctx context.Context) error {
	errs := []error{s.agentSite.Down(ctx)}
	for _, a := range s.serving {
		errs = append(errs, a.end())
	}
	if s.lab != nil {
		errs = append(errs, s.lab.Down(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	// If something could not be removed, keep the reservation: by it, the next run finds the rest.
	if s.reservation != nil && errors.Join(errs...) == nil {
		errs = append(errs, s.reservation.release())
	}
	return errors.Join(errs...)
}

// nodes returns this machine's NUMA nodes. The lab's port is on no node.
func (s *labSite) nodes(ctx context.Context) (nodes.Machine, []int, error) {
	m, err := nodes.Run(ctx, nodes.Config{})
	m.Devices = []numa.Device{{Name: lab.Port, Node: -1}}
	return m, s.lab.Config.SUTCPUs, err
}

// clocks reads nothing: all hosts of the lab have the same clock.
func (s *labSite) clocks(context.Context) (func(context.Context) (axis, error), error) {
	return func(context.Context) (axis, error) { return axis{}, nil }, nil
}

// seats puts all generators on the lab's client, on the processors that the experiment names.
func (s *labSite) seats(n int) []seat {
	var out []seat
	for i := range n {
		out = append(out, seat{lab.Client, place(s.e.Placement.Generator, i, n)})
	}
	return out
}

// user returns the user of the server and of its additional processes.
func (s *labSite) user() string {
	if s.e.Server.User != "" {
		return s.e.Server.User
	}
	return agent.DefaultUser
}

// path returns a path in the run's directory.
func (s *labSite) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

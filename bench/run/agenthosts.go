// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/counters"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lab"
)

// The following methods of agentSite implement the interface hosts.

func (s *agentSite) seats(n int) []seat {
	var out []seat
	used := make([]int, len(s.h.Clients))
	for len(out) < n {
		before := len(out)
		for i, c := range s.h.Clients {
			if len(out) == n || used[i] == max(1, c.Generators) {
				continue
			}
			at := thread.Setup{CPUs: c.CPUs, FIFO: s.e.Placement.Generator.FIFO}
			if c.Generators > 1 && n > len(s.h.Clients) && len(c.CPUs) > 0 {
				at.CPUs = c.CPUs[used[i] : used[i]+1]
			}
			out = append(out, seat{clientName(i, c), at})
			used[i]++
		}
		if len(out) == before {
			panic("more generators than the hosts file has") // package experiment has checked the number
		}
	}
	return out
}

func (s *agentSite) addressOf(host string) string { return s.host(host).Address }

func (s *agentSite) addresses() []string { return s.h.SUT.Addresses() }

func (s *agentSite) link() (rate int64, mtu int) {
	all := s.devices(lab.SUT)
	for _, d := range all {
		rate += int64(cmp.Or(s.h.LinkRate, d.Speed))
		if mtu == 0 || d.MTU < mtu {
			mtu = d.MTU
		}
	}
	if len(all) == 0 {
		return int64(s.h.LinkRate), 0
	}
	return rate, mtu
}

func (s *agentSite) names() map[string]string {
	rate := s.h.LinkRate
	if d := s.agents[lab.SUT].Host.Device; d != nil {
		rate = cmp.Or(rate, d.Speed)
	}
	return map[string]string{
		experiment.NameDevice: s.h.SUT.Device, experiment.NameCgroup: s.agents[lab.SUT].Host.Cgroup,
		experiment.NameLink: y.BitsText(rate),
		experiment.NameCPUs: cpusText(s.e.Placement.Server.CPUs, s.agents[lab.SUT].Host.Processors),
	}
}

// clientValues returns the values of $device and the other names in a client's lanes on one of its
// cards. $device and $link are those of the card: its link may be slower than the SUT's. If it does not
// report its speed, $link is the SUT's.
func (s *agentSite) clientValues(host string, c experiment.Card) map[string]string {
	values := s.values(lab.SUT)
	values[experiment.NameDevice] = c.Device
	for _, d := range s.devices(host) {
		if d.Name == c.Device && d.Speed > 0 {
			values[experiment.NameLink] = y.BitsText(d.Speed)
		}
	}
	return values
}

func (s *agentSite) scratchOf(host string) string { return s.agents[host].Host.Scratch }

func (s *agentSite) put(ctx context.Context, host, name string, text []byte, private bool) error {
	return s.agents[host].Put(ctx, name, text, private)
}

func (s *agentSite) find(ctx context.Context, host, program string) (path, version string, err error) {
	p, err := s.agents[host].Find(ctx, agent.Search{Program: program, Flag: versionFlags[filepath.Base(program)]})
	return p.Path, p.Version, err
}

func (s *agentSite) launch(ctx context.Context, l launch) (task, error) {
	r := agent.Request{What: l.what, Part: l.part, Command: l.argv, Environment: l.env, CPUs: l.CPUs, FIFO: l.FIFO,
		Mems: l.mems, Group: l.group}
	c := s.agents[l.host]
	if l.part != "" {
		// The part's threads set SCHED_FIFO themselves. If all threads of a Go process had it on one
		// processor, one that waits for another could keep the other from running.
		r.FIFO, r.MayFIFO = 0, l.FIFO
		var err error
		if r.Config, err = json.Marshal(l.config); err != nil {
			return nil, err
		}
	}
	r.Member = l.member && c.Host.Cgroup != ""
	if !r.Member {
		r.Group = ""
	}
	j, err := c.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	return &agentTask{j, s.host(l.host).Name}, nil
}

func (s *agentSite) ask(ctx context.Context, host, address string, q ready.Question) error {
	return s.agents[host].Ask(ctx, agent.Asking{Address: address, Question: q})
}

func (s *agentSite) served(ctx context.Context, c load.Config) (counters.Counters, error) {
	return readServed(ctx, s, c)
}

func (s *agentSite) nodes(ctx context.Context) (m nodes.Machine, processors []int, err error) {
	h := s.agents[lab.SUT].Host
	err = outcome(ctx, s, launch{what: "NUMA nodes", host: lab.SUT, part: "nodes",
		config: nodes.Config{Device: cmp.Or(s.h.SUT.Bond, s.h.SUT.Device), Cards: s.cardsOf(), Storage: h.Storage}}, &m)
	return m, h.Processors, err
}

// cardsOf returns the further devices beside the SUT's device; none for a bond, whose slaves are known.
func (s *agentSite) cardsOf() []string {
	if s.h.SUT.Bond != "" {
		return nil
	}
	return s.h.SUT.More()
}

func (s *agentSite) counting(ctx context.Context, processes map[string]task) (func(context.Context) (machine.Diff,
	error), error) {
	jobs := map[string]*agent.Job{}
	for name, t := range processes {
		if t, ok := t.(*agentTask); ok {
			jobs[name] = t.Job
		}
	}
	return s.agents[lab.SUT].Count(ctx, s.h.SUT.Device, s.h.SUT.More(), jobs)
}

// queueing samples nothing: agents cannot read the queues between the hosts.
func (s *agentSite) queueing(context.Context) func() ([]result.Hop, error) {
	return func() ([]result.Hop, error) { return nil, nil }
}

func (s *agentSite) clocks(ctx context.Context) (func(context.Context) (axis, error), error) {
	read := func(ctx context.Context) (map[string]agent.Offset, error) {
		out := map[string]agent.Offset{}
		for name, c := range s.agents {
			o, err := c.Offset(ctx)
			if err != nil {
				return nil, err
			}
			out[name] = o
		}
		return out, nil
	}
	before, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (axis, error) {
		after, err := read(ctx)
		x := axis{map[string]int64{}, map[string]int64{}}
		for name, b := range before {
			a := after[name]
			o := agent.Between(b, a, b.At/2+a.At/2)
			x.ahead[name], x.uncertainty[name] = o.Ns, o.Uncertainty
		}
		return x, err
	}, nil
}

func (s *agentSite) lost() <-chan struct{} { return s.anyLost }

func (s *agentSite) gone() error {
	var errs []error
	for _, name := range s.hostNames() {
		if c := s.agents[name]; c != nil {
			errs = append(errs, c.Err())
		}
	}
	return errors.Join(errs...)
}

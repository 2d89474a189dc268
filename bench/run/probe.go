// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// Keys of a probe's bulk. They are longer than those of a workload (experiment.yaml(5) allows 250
// bytes), so that one server can have both.
const (
	bulkKeys     = 16
	bulkKeyBytes = 250
)

func (m *measurement) probeAddress(p experiment.Probe) string {
	return net.JoinHostPort(cmp.Or(p.Address, m.on.addressOf(lab.SUT)), strconv.Itoa(p.Port))
}

// startProbes starts the servers of the probes, and returns when each has answered.
func (m *measurement) startProbes(ctx context.Context) error {
	for _, p := range m.e.Probes {
		l := launch{what: "the server of probe " + p.Name, host: lab.SUT, member: true, Place: m.e.Placement.Server,
			part: "server"}
		l.config = memserver.Config{Address: m.probeAddress(p), Threads: 1, MaxConnections: m.e.Server.Connections,
			MaxMemory: m.e.Server.Memory, Setup: thread.Setup{CPUs: l.CPUs, FIFO: l.FIFO}}
		t, err := m.on.launch(ctx, l)
		if err != nil {
			return err
		}
		m.beside = append(m.beside, t)
	}
	for _, p := range m.e.Probes {
		ask := func(ctx context.Context) error {
			return m.on.ask(ctx, lab.Client, m.probeAddress(p), ready.Question{Protocol: experiment.ProtocolMemcached})
		}
		if err := until(ctx, "memcached at "+m.probeAddress(p), ask, time.Duration(m.e.Server.Ready.Timeout),
			m.alive); err != nil {
			return fmt.Errorf("probe %s: %w", p.Name, err)
		}
	}
	return nil
}

// fillProbes sets the keys of the probes.
func (m *measurement) fillProbes(ctx context.Context) error {
	at := m.on.seats(1)[0]
	for _, p := range m.e.Probes {
		c, err := filler(m.f, m.probeAddress(p))
		if err != nil {
			return err
		}
		fills := []load.Config{c}
		if p.Bulk > 0 {
			c.Keys, c.KeyBytes, c.ValueBytes, c.Rate = bulkKeys, bulkKeyBytes, experiment.BulkBytes, 100
			fills = append(fills, c)
		}
		for _, c := range fills {
			c.Setup = at.Setup
			var r load.Result
			if err := outcome(ctx, m.on, launch{what: "prefill of probe " + p.Name, host: at.host, part: "load",
				config: c, Place: experiment.Place{CPUs: c.CPUs, FIFO: c.FIFO}}, &r); err != nil {
				return err
			}
			if r.Work.Stored < int64(c.Keys) {
				return fmt.Errorf("probe %s: %d of %d keys were stored: %s", p.Name, r.Work.Stored, c.Keys,
					r.FirstError)
			}
		}
	}
	return nil
}

// probeLoads returns the configurations of the probes' generators. A probe with bulk has two, the
// second for its bulk. Each has a seed that differs from those of the main load's n generators.
func (m *measurement) probeLoads(j Job, n int) ([]load.Config, error) {
	var out []load.Config
	link, mtu := m.on.link()
	for i, p := range m.e.Probes {
		all, err := generators(m.f, []string{m.probeAddress(p)}, j)
		if err != nil {
			return nil, err
		}
		c := all[0]
		c.Connections, c.Rate = j.Connections, float64(p.Rate)
		c.Seed = j.Seed*uint64(n) + uint64(i+1)<<32
		out = append(out, c)
		if p.Bulk == 0 {
			continue
		}
		c.Keys, c.KeyBytes, c.ValueBytes = bulkKeys, bulkKeyBytes, experiment.BulkBytes
		c.Seed += 1 << 31
		c.Rate = max(1, bulkRate(int64(p.Bulk)*link/1000, mtu))
		out = append(out, c)
	}
	return out, nil
}

// bulkRate returns the answers per second that take linkBits of the link, in bit/s.
func bulkRate(linkBits int64, mtu int) float64 {
	const headers, ethernet = 20 + 32, 14
	frames := float64(experiment.BulkBytes) / float64(mtu-headers)
	return float64(linkBits) / 8 / (frames * float64(mtu+ethernet))
}

// probesOf takes the probes' results, which follow those of the main load, into w.
func (m *measurement) probesOf(results []generatorResult, x axis, w *result.Window) error {
	for _, p := range m.e.Probes {
		one, err := merge(results[:1], x)
		if err != nil {
			return err
		}
		results = results[1:]
		r := result.Probe{Name: p.Name, Load: one}
		if p.Bulk > 0 {
			bulk, err := merge(results[:1], x)
			if err != nil {
				return err
			}
			r.Bulk, results = &bulk, results[1:]
		}
		w.Probes = append(w.Probes, r)
	}
	return nil
}

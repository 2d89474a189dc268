// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// describe puts into r the description of the lab, and the tuning that the SUT has in all variants.
func (s *labSite) describe(r *result.Result) {
	c := s.lab.Config
	r.Environment.Network = result.Network{
		Lab: c.Name, Card: c.Card, Device: lab.Port, Queues: c.Queues, MTU: c.MTU, LinkRate: int64(c.LinkRate),
		SwitchBuffer: c.SwitchBuffer, PacketCost: c.PacketCost, WakeupCost: c.WakeupCost,
	}
	r.Environment.Placement = placements(s.e, c)
	sut := s.agents[lab.SUT]
	r.Environment.Cards = append(r.Environment.Cards, cardOf(lab.SUT, sut.Host.Device))
	r.Warnings = append(r.Warnings, sut.Warnings...)
	if len(r.Variants) > 0 {
		v := &r.Variants[0]
		v.Differences = append(baseline(s.e, c, sut.Host.Awake), v.Differences...)
	}
}

// cardOf returns a host's network card for the result. d is what the host's agent has reported.
func cardOf(host string, d *agent.Device) result.Card {
	return result.Card{Host: host, Device: d.Name, Driver: d.Driver, Version: d.Version, Firmware: d.Firmware,
		Bus: d.Bus, Speed: int64(d.Speed)}
}

// placements lists what ran where in every variant.
func placements(e *experiment.Experiment, c lab.Config) []result.Placement {
	p := e.Placement
	of := func(what string, at experiment.Place, host []int) result.Placement {
		x := result.Placement{What: what, CPUs: at.CPUs, Class: classText(at)}
		if x.CPUs == nil {
			x.CPUs = host
		}
		return x
	}
	out := []result.Placement{of("server", p.Server, c.SUTCPUs), of("generator", p.Generator, c.OtherCPUs)}
	if len(e.Noise) > 0 {
		out = append(out, of("noise on the SUT", p.SUTNoise, c.SUTCPUs),
			of("noise on the noise host", p.Noise, c.OtherCPUs))
	}
	return append(out,
		result.Placement{What: "a packet's way to the SUT, from the switch's port on", CPUs: c.SUTCPUs,
			Class: "softirq"},
		result.Placement{What: "a packet's way from the SUT's port on, and the stacks of the other hosts",
			CPUs: c.OtherCPUs, Class: "softirq"})
}

func classText(p experiment.Place) string {
	if p.FIFO > 0 {
		return fmt.Sprintf("SCHED_FIFO %d", p.FIFO)
	}
	return "SCHED_OTHER"
}

// baseline lists how the SUT is tuned in every variant: the parts of the baseline in
// "Application Device Queues for Apache Traffic Server" (Intel, 2022) that the lab has.
func baseline(e *experiment.Experiment, c lab.Config, awake bool) []string {
	spread := "RSS over all of them"
	if c.Card == lab.CardNone {
		spread = "a hash of the flow over all of them (a plain veth, no card)"
	}
	var out []string
	if awake {
		out = append(out, "processors kept awake (/dev/cpu_dma_latency 0), as tuned's latency-performance does")
	}
	if c.PacketCost > 0 || c.WakeupCost > 0 {
		out = append(out, "all else takes no time; "+result.CostText(c.PacketCost, c.WakeupCost))
	}
	return append(out,
		"somaxconn 4096, tcp_max_syn_backlog 250000, tcp_rmem and tcp_wmem up to 120 MiB",
		fmt.Sprintf("%d queues, %s, GRO on, segmentation by the card", c.Queues, spread),
		"the card's interrupts arrive on the server's processors; the card's transmit rings are served in turn",
		"root qdisc mq with the kernel's default leaves, as on a card; no byte queue limits (BQL): on a host that has "+
			"BQL, a lane gains less on transmit",
		fmt.Sprintf("server %s, generator %s, each outside any autogroup", classText(e.Placement.Server),
			classText(e.Placement.Generator)),
	)
}

// versionFlags are the flags with which servers print their version. A program that is not
// listed is not asked, because its flags are not known.
var versionFlags = map[string]string{
	"memcached": "-V", "redis-server": "--version", "valkey-server": "--version", "nginx": "-v", "haproxy": "-v",
	"varnishd": "-V", "traffic_server": "-V", "lighttpd": "-v", "asd": "--version",
}

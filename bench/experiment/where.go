// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/power"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
)

// LabName is the default name of an experiment's lab. It differs from the default name of other
// labs.
const LabName = "niclane-bench"

// noisePort is the default port of the first noise.
const noisePort = 5001

func labKeys() []y.Key[Lab] {
	return []y.Key[Lab]{
		y.Of("name", y.Pattern("a letter, then letters, digits and -, at most 24 in all", `^[a-z][a-z0-9-]{0,23}$`,
			nil), LabName,
			"Name of the lab and of its network namespaces. The run takes down a lab of this name that an earlier "+
				"run left.",
			func(l *Lab, x string) { l.Name = x }),
		y.Of("card", y.Word("emulated", "none"), "emulated",
			"The SUT's port: a card that steers, or a plain veth.",
			func(l *Lab, x string) { l.Card = x }),
		y.Of("queues", y.Integer(1, maxLabQueues), "the lab's",
			"Queues of the SUT's port.",
			func(l *Lab, x int) { l.Queues = x }),
		y.Of("link-rate", y.BitRate(), "the lab's",
			"Rate of the link to the SUT, in each direction.",
			func(l *Lab, x uint64) { l.LinkRate = x }),
		y.Of("link-burst", y.Size(2000, 1<<20), "the lab's",
			"Bytes by which the link may exceed its rate for a moment.",
			func(l *Lab, x int64) { l.LinkBurst = int(x) }),
		y.Of("switch-buffer", y.Size(2000, 1<<30), "the lab's",
			"Buffer of the switch's port toward the SUT.",
			func(l *Lab, x int64) { l.SwitchBuffer = int(x) }),
		y.Of("switch-mark", y.Size(2000, 1<<30), "the switch marks nothing",
			"Bytes in that buffer from which the switch marks packets that can carry a mark (ECN). It needs the "+
				"kernel's sch_red, which virtual time has.",
			func(l *Lab, x int64) { l.SwitchMark = int(x) }),
		y.Of("switch-first", y.OneOrList(config.DSCP(), 64), "none",
			"DSCPs of packets that the switch's port sends before all others. They have a buffer of their own. It "+
				"needs the kernel's sch_prio, which virtual time has, and a card.",
			func(l *Lab, x []string) { l.SwitchFirst = x }),
		y.Of("delay", y.Duration(0, time.Second), "0",
			"How long a frame travels on the link, in each direction. It needs the kernel's sch_netem, which virtual "+
				"time has.",
			func(l *Lab, x int64) { l.Delay = x }),
		y.Of("packet-cost", y.Duration(0, time.Millisecond), "0",
			"For virtual time, a model of the SUT's processors: each receive queue has one, which takes so long for a "+
				"packet. All else takes no time. It needs a card.",
			func(l *Lab, x int64) { l.PacketCost = x }),
		y.Of("wakeup-cost", y.Duration(0, time.Millisecond), "0",
			"In this model, what such a processor takes before the first packet if it slept. 0: it polls.",
			func(l *Lab, x int64) { l.WakeupCost = x }),
		y.Of("ring", y.Size(2588, 1<<30), "the lab's",
			"Size of each of the card's transmit rings.",
			func(l *Lab, x int64) { l.Ring = int(x) }),
		y.Of("rules", y.Integer(1, 1024), "the lab's",
			"Number of rules that fit in the card.",
			func(l *Lab, x int) { l.Rules = x }),
		y.Of("contexts", y.Integer(1, 16), "the lab's",
			"Number of RSS contexts of the card.",
			func(l *Lab, x int) { l.Contexts = x }),
		y.Of("mtu", y.Integer(1280, 9000), "the lab's",
			"MTU of all ports.",
			func(l *Lab, x int) { l.MTU = x }),
		y.Of("frames", y.Boolean(), "off",
			"On: the card's transmit queues take turns by frames, as on a real card, not by units of up to 64 KiB. "+
				"For virtual time: it costs time for each frame.",
			func(l *Lab, x bool) { l.Frames = x }),
		y.Of("addresses", y.Texts("a list of IPv4 and IPv6 addresses", 256, address()), "none",
			"Further addresses of the SUT, outside the lab's own networks.",
			func(l *Lab, x []string) { l.Addresses = x }),
		y.Of("noise-segment", y.Size(2000, 65536), "the lab's",
			"Longest burst that a single send of the noise host makes (gso_max_size).",
			func(l *Lab, x int64) { l.NoiseSegment = int(x) }),
		y.Of("sut-cpus", cpus(), "the upper half of the online ones; with `server.split`, of each NUMA node's",
			"Processors that do all work of the SUT.",
			func(l *Lab, x []int) { l.SUTCPUs = x }),
		y.Of("other-cpus", cpus(), "the lower half, likewise",
			"Processors that do the work of all other hosts.",
			func(l *Lab, x []int) { l.OtherCPUs = x }),
	}
}

func lab() y.Kind[Lab] {
	return y.Nested("lab", "a mapping of keys: card, link-rate, ...; {} for the lab's defaults", labKeys,
		func() Lab { return Lab{Name: LabName} })
}

func hostKeys() []y.Key[Host] {
	return []y.Key[Host]{
		y.Of("name", name(), "sut, noise, client1, client2, ...",
			"Name of the host, for messages and the report.",
			func(h *Host, x string) { h.Name = x }),
		y.Of("agent", agent(), "required",
			"Address on which `niclane bench serve` listens on the host.",
			func(h *Host, x string) { h.Agent = x }),
		y.Of("server-name", serverName(), "the host of `agent`",
			"Name that the agent's certificate must have.",
			func(h *Host, x string) { h.ServerName = x }),
		y.Of("address", address(), "required, unless each of `cards` has one",
			"Address of the host in the measured network.",
			func(h *Host, x string) { h.Address = x }),
		y.Of("device", y.NetworkDevice(),
			"required for the SUT, and for clients if a variant has `client-lanes`",
			"Device in the measured network, for lanes. Not for noise hosts.",
			func(h *Host, x string) { h.Device = x }),
		y.Of("cards", cards(), "the one `device`",
			"Devices of a host that has several in the measured network, instead of `device` and `address`: see A "+
				"CARD. Each has lanes of its own. The load's connections are divided among the SUT's addresses, and "+
				"the noise host needs as many, one for each.",
			func(h *Host, x []Card) { h.Cards = x }),
		y.Of("bond", y.AnyNetworkDevice(), "none",
			"Bond whose slaves are `cards`. It has the host's `address`. Lanes with `dev: $device` are the bond's.",
			func(h *Host, x string) { h.Bond = x }),
		y.Of("cpus", cpus(), "all that the agent may use",
			"Processors of the server, of the client's generators (each of several gets one), or of the noise. "+
				"The experiment's own processors are for the lab.",
			func(h *Host, x []int) { h.CPUs = x }),
		y.Of("noise-cpus", cpus(), "all that the agent may use",
			"Processors of the noise's processes. For the SUT only.",
			func(h *Host, x []int) { h.NoiseCPUs = x }),
		y.Of("threads", y.Integer(1, maxThreads), "`server.threads` of the experiment",
			"Threads of the server. For the SUT only.",
			func(h *Host, x int) { h.Threads = x }),
		y.Of("queues", y.Integer(1, maxQueues), "`server.queues` of the experiment",
			"Queues of the server's lane, on each card. For the SUT only.",
			func(h *Host, x int) { h.Queues = x }),
		y.Of("pollers", y.Integer(1, maxQueues), "`server.pollers` of the experiment",
			"Threads that poll these queues. For the SUT only.",
			func(h *Host, x int) { h.Pollers = x }),
		y.Of("generators", y.Integer(1, maxGenerators), "1 on a client",
			"Generator processes on the client. The sum over all clients replaces `load.generators`.",
			func(h *Host, x int) { h.Generators = x }),
		y.Of("storage", storage(), "`$storage` is `$scratch`",
			"Directories by the NUMA node of their drives. For the SUT only. With `server.split: numa`, each "+
				"instance uses its node's: the agent makes a directory in it, which `$storage` stands for, and "+
				"removes it again.",
			func(h *Host, x map[int]string) { h.Storage = x }),
	}
}

// maxStorage is the largest number of NUMA nodes with storage. storageText is the longest path, in
// bytes. Agents have the same limits.
const (
	maxStorage  = 16
	storageText = 200
)

func storage() y.Kind[map[int]string] {
	const want = "an absolute path of a directory, of at most 200 bytes"
	dir := y.Pattern(want, `^/[^\x00-\x1f\x7f\\]{0,199}$`, func(s string) string {
		switch clean := path.Clean(s); {
		case len(s) > storageText:
			return "want " + want
		case clean != s:
			return "want it as " + clean
		}
		return ""
	})
	k := y.Mapping("a mapping from NUMA nodes to directories: {0: /srv/nvme0, 1: /srv/nvme1}", `^(0|[1-9][0-9]{0,3})$`,
		"the number of a NUMA node", dir)
	return y.Mapped(k, func(m map[string]string) map[int]string {
		out := map[int]string{}
		for name, dir := range m {
			node, _ := strconv.Atoi(name) // no error: name matches Mapping's pattern
			out[node] = dir
		}
		return out
	})
}

const hostWant = "a mapping of keys: agent, address, ..."

func host(name string) y.Kind[Host] {
	return y.Nested("host", hostWant, hostKeys, func() Host { return Host{Name: name} })
}

func hostsKeys() []y.Key[Hosts] {
	return []y.Key[Hosts]{
		y.Of("sut", host("sut"), "required",
			"The system under test.",
			func(h *Hosts, x Host) { h.SUT = x }),
		y.Of("clients", y.Sections("host", "a list of hosts", 64, hostKeys, func(y.Value) Host { return Host{} }),
			"required",
			"The hosts that generators run on.",
			func(h *Hosts, x []Host) { h.Clients = x }),
		y.Of("noise", host("noise"), "required if the experiment has `noise`",
			"The other end of the noise.",
			func(h *Hosts, x Host) { h.Noise = &x }),
		y.Of("link-rate", y.BitRate(), "what the SUT's device reports",
			"Rate of the SUT's link, of each one if it has several cards. Shares in `noise` are shares of the sum.",
			func(h *Hosts, x uint64) { h.LinkRate = x }),
		y.Of("power", powerSources(), "the experiment's",
			"Power sources of the SUT, in place of the experiment's: a BMC or PDU measures the whole host, where an "+
				"experiment can only name `rapl`. See POWER.",
			func(h *Hosts, x []power.Config) { h.Power = x }),
		y.Of("authority", y.Path("a PEM file of certificates"), "required",
			"Authority of the agents' certificates.",
			func(h *Hosts, x string) { h.Authority = x }),
		y.Of("certificate", y.Path("a PEM file of a certificate"), "required",
			"Certificate that this side shows to the agents.",
			func(h *Hosts, x string) { h.Certificate = x }),
		y.Of("key", y.Path("a PEM file of a private key"), "required",
			"Private key of `certificate`.",
			func(h *Hosts, x string) { h.Key = x }),
	}
}

func placeKeys() []y.Key[Place] {
	return []y.Key[Place]{
		y.Of("cpus", cpus(), "the host's own",
			"Processors that the process may run on.",
			func(p *Place, x []int) { p.CPUs = x }),
		y.Of("fifo", y.Integer(1, 99), "none, SCHED_OTHER",
			"SCHED_FIFO priority.",
			func(p *Place, x int) { p.FIFO = x }),
	}
}

func place() y.Kind[Place] {
	return y.Nested("place", "a mapping of keys: cpus, fifo", placeKeys, func() Place { return Place{} })
}

func placementKeys() []y.Key[Placement] {
	return []y.Key[Placement]{
		y.Of("server", place(), "the SUT's processors",
			"Processors and priority of the server in every variant. A lane that names processors moves the "+
				"server there.",
			func(p *Placement, x Place) { p.Server = x }),
		y.Of("generator", place(), "the clients' processors",
			"Processors and priority of each generator.",
			func(p *Placement, x Place) { p.Generator = x }),
		y.Of("noise", place(), "the noise host's processors",
			"Processors and priority of the noise's processes on the noise host.",
			func(p *Placement, x Place) { p.Noise = x }),
		y.Of("sut-noise", place(), "the SUT's processors",
			"Processors and priority of the noise's processes on the SUT.",
			func(p *Placement, x Place) { p.SUTNoise = x }),
	}
}

func placement() y.Kind[Placement] {
	return y.Nested("placement", "a mapping of keys: server, generator, ...", placementKeys,
		func() Placement { return Placement{} })
}

// maxProbes is more than a file can have lanes with queues of their own.
const maxProbes = 64

func probeKeys() []y.Key[Probe] {
	return []y.Key[Probe]{
		y.Of("name", name(), "required",
			"Name of the probe, for messages and results.",
			func(p *Probe, x string) { p.Name = x }),
		y.Of("address", address(), "the SUT's",
			"Address on which the probe's server listens.",
			func(p *Probe, x string) { p.Address = x }),
		y.Of("port", port(), "required",
			"Port on which the probe's server listens.",
			func(p *Probe, x int) { p.Port = x }),
		y.Of("rate", y.Integer(1, maxRate), "the last of `load.rates`",
			"Requests per second.",
			func(p *Probe, x int) { p.Rate = x }),
		y.Of("bulk", y.Share(1, 1000), "none",
			"Share of the link that the probe's server also sends, as answers of 64 KiB.",
			func(p *Probe, x int) { p.Bulk = x }),
	}
}

func probes() y.Kind[[]Probe] {
	return y.Sections("probe", "a list of probes, each with name and port", maxProbes, probeKeys,
		func(y.Value) Probe { return Probe{} })
}

func (r *reader) checkProbes() {
	all := r.e.Probes
	if len(all) == 0 || !r.fine("probes", "server", "load", "workload.protocol") {
		return
	}
	switch {
	case r.on != nil:
		r.Failf("probes", "found with --hosts, want a run in the lab")
	case r.e.Server.Kind != KindNiclane && r.e.Server.Kind != KindMemcached:
		r.Failf("probes", "found with server.kind: %s, want niclane or memcached, whose protocol probes speak",
			r.e.Server.Kind)
	case r.e.Workload.Protocol != ProtocolMemcached:
		r.Failf("probes", "found with protocol: %s, want protocol: memcached", r.e.Workload.Protocol)
	case r.e.Load.Mode != Open || len(r.e.Load.Rates) == 0:
		r.Failf("probes", "found without load.rates, want mode: open and rates")
	}
	type place struct {
		address string
		port    int
	}
	taken := map[place]string{{r.e.Server.Address, r.e.Server.Port}: "the server"}
	for _, n := range r.e.Noise {
		if n.Direction == ToSUT && n.Protocol != "udp" {
			taken[place{"", n.Port}] = "noise"
		}
	}
	names := map[string]bool{}
	for i, p := range all {
		path := fmt.Sprintf("probes[%d]", i)
		if names[p.Name] {
			r.Failf(path+".name", "found %s twice, want a name of its own", p.Name)
		}
		names[p.Name] = true
		at := place{p.Address, p.Port}
		if by := taken[at]; by != "" {
			r.Failf(path+".port", "found %d, which %s has, want another port", p.Port, by)
		}
		taken[at] = "another probe"
	}
}

func noiseKeys() []y.Key[Noise] {
	return []y.Key[Noise]{
		y.Of("direction", y.Word(ToSUT, FromSUT), "required",
			"Direction of the noise.",
			func(n *Noise, x string) { n.Direction = x }),
		y.Of("protocol", y.Word("tcp", "udp"), "tcp",
			"TCP that the kernel paces, or UDP at a constant rate.",
			func(n *Noise, x string) { n.Protocol = x }),
		y.Of("rate", y.RateOrShare(), "required",
			"Rate on the link over all flows, including Ethernet headers.",
			func(n *Noise, x y.Rate) { n.BitsPerSecond, n.Share = x.BitsPerSecond, x.Permille }),
		y.Of("flows", y.Integer(1, 1000), "1",
			"Connections, or pairs of ports.",
			func(n *Noise, x int) { n.Flows = x }),
		y.Of("port", port(), "5001, 5002, ...",
			"Port of the receiver.",
			func(n *Noise, x int) { n.Port = x }),
		y.Of("segment", y.Integer(88, 65507), "the kernel's; what fits the MTU",
			"Bytes: the MSS of TCP (at most 32767), or the payload of a UDP datagram.",
			func(n *Noise, x int) { n.Segment = x }),
		y.Of("congestion", y.Pattern("the name of a congestion control", `^[a-z][a-z0-9_-]{0,15}$`, nil),
			"the kernel's",
			"Congestion control of TCP.",
			func(n *Noise, x string) { n.Congestion = x }),
	}
}

func noise() y.Kind[[]Noise] {
	return y.Sections("noise", "a list of bulk traffic, each with direction and rate", 16, noiseKeys,
		func(y.Value) Noise { return Noise{Protocol: "tcp", Flows: 1} })
}

func hostNoiseKeys() []y.Key[HostNoise] {
	return []y.Key[HostNoise]{
		y.Of("window", y.Duration(100*time.Millisecond, time.Minute), "1s",
			"Time for which the run observes the hosts, before and again after the measurement.",
			func(h *HostNoise, x int64) { h.Window = x }),
		y.Of("percentile", percentile(), "99",
			"Percentile of the lateness of a thread that wants to wake up.",
			func(h *HostNoise, x float64) { h.Percentile = x }),
		y.Of("at-most", y.Duration(time.Microsecond, time.Second), "no limit",
			"Limit of that percentile on each processor that the experiment uses.",
			func(h *HostNoise, x int64) { h.AtMost = x }),
		y.Of("otherwise", y.Word("warn", "refuse"), "warn",
			"What happens above the limit: a warning beside the result, or no run.",
			func(h *HostNoise, x string) { h.Refuse = x == "refuse" }),
	}
}

func hostNoise() y.Kind[HostNoise] {
	return y.Nested("host-noise", "a mapping of keys: "+strings.Join(y.Names(hostNoiseKeys()), ", "), hostNoiseKeys,
		hostNoiseStart)
}

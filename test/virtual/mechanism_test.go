// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A mechanism is one way to make the lanes of the experiment.
type mechanism struct {
	name  string
	card  []string // parameters of the simulated card; nil: the lab's emulated card
	force string   // globals.force
	// What the lanes ask for, besides queues of their own.
	rank, guarantee, ceiling bool
	lowRank                  bool // the lane that comes first comes last
	// cgroup is the root of the hierarchy with a control group for each lane; "": members have none.
	cgroup string
	// damage is a command line that breaks the lanes after they are made. DEV is the device.
	damage string
	// link is the link's rate in Mbit/s, 0 for slowest; only the simulated card has another one.
	link float64
	// queues is how many the default lane has, 0 for 2.
	queues int
	// sources replace those that the mechanisms have in common. If alone is not "", it is what the
	// first lane asks for, and there is no other lane.
	sources []source
	alone   string
	// immune are mutants that break nothing: the mechanism has no such part, or does not need it.
	immune []string
}

// Roots of hierarchies.
const (
	cgroup2 = "/sys/fs/cgroup"
	netPrio = "/run/net_prio"
)

var (
	plain = []string{"queues=8", "channels=8", "speed=100", "burst_us=0"}
	ice   = []string{"driver=ice", "queues=8", "channels=8", "contexts=1", "pow2=1", "speed=100", "burst_us=0"}
	mlx5  = []string{"driver=mlx5_core", "queues=16", "channels=8", "rx_classes=0", "shaper=0", "htb_shares=1",
		"speed=100", "burst_us=0"}
)

// mechanisms has no host without lanes: there each flow's queue depends on its hash, and the figures
// with it.
var mechanisms = []mechanism{
	{name: "lab-htb", force: "bandwidth: htb", rank: true, guarantee: true, ceiling: true},
	{name: "lab-htb-queue-mapping", force: "mapper: queue-mapping, bandwidth: htb", rank: true, guarantee: true, ceiling: true},
	{name: "lab-htb-shared", force: "mapper: shared, bandwidth: htb", rank: true, guarantee: true, ceiling: true},
	{name: "lab-htb-tcx", force: "classifier: tcx, bandwidth: htb", rank: true, guarantee: true, ceiling: true,
		immune: []string{noClassifier}},
	{name: "lab-htb-sockops", force: "classifier: cgroup-sockops", cgroup: cgroup2, rank: true, guarantee: true,
		ceiling: true, immune: []string{noClassifier}},
	{name: "lab-edt", rank: true, guarantee: true, ceiling: true},
	{name: "lab-edt-queue-mapping", force: "mapper: queue-mapping", rank: true, guarantee: true, ceiling: true},
	{name: "card-edt", card: plain, rank: true, guarantee: true, ceiling: true},
	{name: "lab-mq-tbf", force: "bandwidth: mq-tbf", ceiling: true, immune: []string{noClassifier}},
	{name: "lab-mqprio-software", force: "mapper: mqprio-software"},
	{name: "lab-queues", force: "mapper: queue-mapping", immune: []string{noQdisc}},
	{name: "card-htb", card: plain, force: "bandwidth: htb", rank: true, guarantee: true, ceiling: true},
	{name: "card-htb-net-prio", card: plain, force: "classifier: net-prio", cgroup: netPrio, rank: true,
		guarantee: true, ceiling: true, immune: []string{noClassifier}},
	{name: "card-net-shaper", card: plain, force: "mapper: queue-mapping, bandwidth: net-shaper", guarantee: true,
		ceiling: true, immune: []string{noQdisc}},
	{name: "card-tx-maxrate", card: plain, force: "mapper: queue-mapping, bandwidth: tx-maxrate", ceiling: true,
		immune: []string{noQdisc}},
	{name: "card-mqprio-bw-rlimit", card: ice, force: "bandwidth: mqprio-bw-rlimit", guarantee: true, ceiling: true},
	{name: "card-htb-offload", card: mlx5, force: "mapper: htb-offload, bandwidth: htb-offload", guarantee: true,
		ceiling: true},
}

// A laneText is one lane of the experiment.
type laneText struct {
	name, asks string
	port       int
}

func (m mechanism) lanes() []laneText {
	if m.alone != "" {
		return []laneText{{name: "first", asks: m.alone, port: 7001}}
	}
	l := []laneText{{name: "first", port: 7001}, {name: "held", port: 7002}, {name: "capped", port: 7003}}
	// A lane below its guarantee waits for nothing, whatever its rank.
	switch {
	case m.lowRank:
		l[0].asks += ", rank: 7"
		l[1].asks += ", rank: 1"
	case m.rank:
		l[0].asks += ", rank: 1"
	case m.guarantee:
		l[0].asks += ", guarantee: 20%"
	}
	if m.guarantee {
		l[1].asks += ", guarantee: 30%"
		l[2].asks += ", guarantee: 10%" // so that the ceiling is what limits it
	}
	if m.ceiling {
		l[2].asks += ", ceiling: 10%"
	}
	return l
}

// file returns the lanes file.
func (m mechanism) file(dev string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nglobals:\n  dev: %s\n  link-rate: %.0fmbit\n  queues: %d\n", dev, slowest*m.speedup(),
		cmp.Or(m.queues, 2))
	if m.guarantee {
		// Otherwise the default lane's guarantee is all that the lanes leave, and nothing is left to borrow.
		b.WriteString("  guarantee: 10%\n")
	}
	if m.force != "" {
		fmt.Fprintf(&b, "  force: {%s}\n", m.force)
	}
	b.WriteString("lanes:\n")
	for _, l := range m.lanes() {
		fmt.Fprintf(&b, "  %s: {queues: 2, protocol: udp, ports: [%d]", l.name, l.port)
		if m.cgroup != "" {
			fmt.Fprintf(&b, ", cgroup: /%s", l.name)
		}
		fmt.Fprintf(&b, "%s}\n", l.asks)
	}
	return b.String()
}

// Names of mutants that break what the lanes need.
const (
	noClassifier = "no-classifier"
	noQdisc      = "no-qdisc"
)

// A mutant breaks lanes.
type mutant struct {
	name  string
	apply func(*mechanism)
}

// mutants returns the mutants of a mechanism.
func (m mechanism) mutants() []mutant {
	var all []mutant
	if m.rank {
		all = append(all, mutant{"no-rank", func(m *mechanism) { m.rank = false }},
			mutant{"rank-flipped", func(m *mechanism) { m.lowRank = true }})
	}
	if m.guarantee {
		all = append(all, mutant{"no-guarantee", func(m *mechanism) { m.guarantee = false }})
	}
	if m.ceiling {
		all = append(all, mutant{"no-ceiling", func(m *mechanism) { m.ceiling = false }})
	}
	all = append(all, mutant{noClassifier, func(m *mechanism) { m.damage = "tc filter del dev DEV egress" }},
		mutant{noQdisc, func(m *mechanism) { m.damage = "tc qdisc del dev DEV root" }})
	return slices.DeleteFunc(all, func(x mutant) bool { return slices.Contains(m.immune, x.name) })
}

// TestMechanisms measures for each mechanism a lane with requests, one with a guarantee and one with
// a ceiling, beside more traffic than the link takes, and compares with the golden.
func TestMechanisms(t *testing.T) {
	g := readGolden(t)
	t.Run("all", func(t *testing.T) {
		for _, m := range mechanisms {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				if *update {
					g.set(m.name, seeds(t, m))
					return
				}
				if f := m.measure(t, 1); f != nil {
					for _, why := range g.differences(m.name, f) {
						t.Error(why)
					}
				}
			})
		}
	})
	if *update {
		g.write(t)
	}
}

// TestMutants breaks lanes. Each time the figures must differ from the golden.
func TestMutants(t *testing.T) {
	g := readGolden(t)
	for _, m := range mechanisms {
		for _, x := range m.mutants() {
			t.Run(m.name+"-"+x.name, func(t *testing.T) {
				t.Parallel()
				name := m.name
				x.apply(&m)
				f := m.measure(t, 1)
				if f == nil {
					return
				}
				why := g.differences(name, f)
				if len(why) == 0 {
					t.Error("nothing differs from the golden")
				}
				t.Log(strings.Join(why, "; "))
			})
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// The variants of the experiment.
const (
	AsItIs    = "as-it-is"
	WithLanes = "with-lanes"
)

const (
	// requestShare is the share of the link in permille that all requests take together: little, so
	// that they show queues and do not make them.
	requestShare = 60
	// requestBytes is about what a request or its answer takes on the link, acknowledgements included.
	requestBytes = 300
	// enough is the number of requests for P99.9, with some more because arrivals are random.
	// atMost is the number for all lanes of a variant: with more lanes, each gets fewer.
	// With at least the number least, there is a P99.
	enough, atMost, least = 10_500, 31_500, 1_100
	// leastWindow is the shortest window that experiments have, ns.
	leastWindow = 10e6
	connections = 8
	// mostRequests is the largest number of requests per second of all lanes: few enough that requests
	// do not wait for each other.
	mostRequests = 25_000
	// flowRate is what one flow reaches even if its receive window, of some 60 KB, does not grow. Linux
	// does not let it grow while the round trip without a queue is short.
	flowRate = 2e9
	// mostFrames is how many frames of other traffic a variant may have: they take most of the real
	// time. frameBits is the length of a frame.
	mostFrames, frameBits = 1_200_000, 1514 * 8
)

// pace returns the requests per second of each lane, and the counted time in ns.
func (m *mapper) pace() (rate int, window int64) {
	lanes := uint64(len(m.probes) + 1)
	rate = int(max(10, min(m.s.Link*requestShare/1000/8/requestBytes, mostRequests)/lanes))
	window = m.o.Window
	if window == 0 {
		requests := min(enough, max(least, atMost/int64(lanes)))
		window = (requests*1000/int64(rate) + 1) * 1e6 // whole ms
		if frames := 2 * int64(m.s.Link) / frameBits * int64(m.o.Noise+m.o.Bulk*len(m.probes)) / 1000; frames > 0 {
			window = max(min(window, mostFrames*1000/frames*1e6), (least*1000/int64(rate)+1)*1e6, leastWindow)
		}
	}
	return rate, window
}

// experiment returns the text of the experiment's file. ports are for the default lane's server and
// for the noise in both directions.
func (m *mapper) experiment(lanes string, ports []int) string {
	rate, window := m.pace()
	m.s.Lanes[len(m.s.Lanes)-1].At = "10.77.0.1:" + strconv.Itoa(ports[0])
	var b text
	b.line(0, "# Made by niclane simulate from %s, for virtual time.", cmp.Or(oneLine(m.in.Source), "a lanes file"))
	b.line(0, "version: 1")
	b.line(0, "title: %s", y.Quote("What "+cmp.Or(oneLine(m.in.Source), "a lanes file")+" does to queueing"))
	b.line(0, "lab:")
	b.line(1, "name: niclane-simulate")
	b.line(1, "card: %s", m.card)
	b.line(1, "queues: %d", m.s.Queues)
	b.line(1, "link-rate: %s", y.BitsText(m.s.Link))
	b.line(1, "frames: on")
	if m.mtu > 0 {
		b.line(1, "mtu: %d", m.mtu)
	}
	if m.o.Buffer > 0 {
		b.line(1, "switch-buffer: %d", m.o.Buffer)
	}
	if m.o.PacketCost > 0 {
		b.line(1, "packet-cost: %s", y.DurationText(m.o.PacketCost))
	}
	if m.o.WakeupCost > 0 {
		b.line(1, "wakeup-cost: %s", y.DurationText(m.o.WakeupCost))
	}
	if len(m.addresses) > 0 {
		b.line(1, "addresses: [%s]", `"`+strings.Join(m.addresses, `", "`)+`"`)
	}
	b.line(0, "# The default lane's server.")
	b.line(0, "server: {kind: niclane, port: %d, memory: 16 MiB}", ports[0])
	b.line(0, "workload: {protocol: memcached, keys: 1000, key-bytes: 16, value-bytes: 64}")
	b.line(0, "load: {mode: open, rates: %d, connections: %d, warmup: %s, window: %s}", rate, connections,
		y.DurationText(max(window/20/1e6, 1)*1e6), y.DurationText(window))
	if len(m.probes) > 0 {
		b.line(0, "# One server for each lane.")
		b.line(0, "probes:")
	}
	for _, p := range m.probes {
		b.WriteString("  - {name: " + p.Name)
		if p.Address != "" {
			b.WriteString(", address: " + y.Quote(p.Address))
		}
		b.WriteString(", port: " + strconv.Itoa(p.Port))
		if p.Bulk > 0 {
			b.WriteString(", bulk: " + y.PermilleText(p.Bulk))
		}
		b.WriteString("}\n")
	}
	if m.o.Noise > 0 {
		b.line(0, "noise:")
		rate := y.PermilleText(m.o.Noise)
		if m.o.Noise > 1000 {
			rate = y.BitsText(m.s.Link / 1000 * uint64(m.o.Noise))
		}
		b.line(1, "- {direction: to-sut, rate: %s, flows: %d, port: %d}", rate, m.flowsIn(), ports[1])
		b.line(1, "- {direction: from-sut, rate: %s, flows: 16, port: %d}", rate, ports[2])
	}
	b.line(0, "variants:")
	b.line(1, "- name: %s", AsItIs)
	b.line(2, "title: the host as it is")
	b.line(1, "- name: %s", WithLanes)
	b.line(2, "title: the same, and the lanes")
	b.line(2, "lanes: |")
	for line := range strings.Lines(lanes) {
		b.WriteString("      " + line)
	}
	b.line(0, "base: %s", AsItIs)
	b.line(0, "repeats: {min: 1}")
	b.line(0, "time-limit: %s", y.DurationText(max(2*window, 0)+600e9))
	return b.String()
}

// flowsIn returns the number of flows of the noise toward the host: few, because each adds bursts to
// the switch's queue, and enough that no flow waits for its receive window. Noise that asks for more
// than the link has fills that queue, so its flows are many.
func (m *mapper) flowsIn() uint64 {
	const most = 16
	if m.o.Noise > 1000 {
		return most
	}
	return min(max(1, m.s.Link/1000*uint64(m.o.Noise)/flowRate), most)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

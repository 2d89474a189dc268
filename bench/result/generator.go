// SPDX-License-Identifier: Apache-2.0

package result

import (
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// Generator describes the generators themselves, over all windows of a variant.
type Generator struct {
	// Late is the delay between the intended time and the time at which a generator came to the
	// request, as far as the sample can support it: P50, P99, P99.9. Open loop only.
	Late []stats.Step `json:"late,omitempty"`
	// Uncorrected is the latency from the actual send, which hides stalls: P50, P99, P99.9.
	Uncorrected []stats.Step `json:"uncorrected,omitempty"`
	// CPU is the share of a processor that each generator used.
	CPU         float64 `json:"cpu"`
	Retransmits uint64  `json:"retransmits"`
	Lost        int     `json:"connectionsLost"`
	Payload     float64 `json:"payloadBitsPerSecond"` // received
}

func generator(windows map[int]*Window) (g Generator) {
	var duration, cpu, payload int64
	for _, w := range windows {
		duration += w.Load.Duration
		cpu += w.Load.CPUTime
		payload += w.Load.Payload
		g.Retransmits += w.Load.Retransmits
		g.Lost += w.Load.ConnectionsLost
	}
	g.CPU = float64(cpu) / float64(duration)
	g.Payload = float64(payload) * 8e9 / float64(duration)
	g.Late = three(merged(windows, func(l *load.Result) *stats.Histogram { return l.Wakeup }))
	g.Uncorrected = three(merged(windows, func(l *load.Result) *stats.Histogram { return l.Uncorrected }))
	return g
}

// carried returns the percentiles that a sample can support.
func carried(h *stats.Histogram, percentiles ...float64) (out []stats.Step) {
	for _, p := range percentiles {
		if v, err := stats.Percentile(h, p); err == nil {
			out = append(out, stats.Step{Percentile: p, NS: v})
		}
	}
	return out
}

func three(h *stats.Histogram) []stats.Step { return carried(h, 50, 99, 99.9) }

// A NoiseSummary is one direction of the noise, over all windows of a variant.
type NoiseSummary struct {
	Direction string `json:"direction"`
	// Asked and Achieved are payload rates, bit/s, means of windows.
	Asked    float64 `json:"askedBitsPerSecond"`
	Achieved float64 `json:"achievedBitsPerSecond"`
	// Retransmits are TCP's. Lost are UDP's, out of Datagrams.
	Retransmits uint64 `json:"retransmits"`
	Lost        int64  `json:"lost,omitempty"`
	Datagrams   int64  `json:"datagrams,omitempty"`
	// Latency of the noise itself: P50, P99, P99.9, as far as the samples can support them.
	// LatencyOf is its kind.
	Latency   []stats.Step `json:"latency,omitempty"`
	LatencyOf string       `json:"latencyOf,omitempty"`
}

func noiseSummaries(windows map[int]*Window) (out []NoiseSummary) {
	var ways tally[string, NoiseSummary]
	latency := map[string][]*stats.Histogram{}
	for _, i := range rounds(windows) {
		for _, n := range windows[i].Noise {
			s := ways.at(n.Direction)
			each := 1 / float64(len(windows))
			s.Asked += float64(n.Asked) * each
			s.Achieved += float64(n.Achieved) * each
			s.Retransmits += n.Sender.Retransmits
			s.Lost += n.Receiver.Lost
			s.Datagrams += n.Sender.Datagrams
			// The sender of TCP and the receiver of UDP measure it.
			for _, x := range []noise.Result{n.Sender, n.Receiver} {
				if x.Latency.Count() > 0 {
					latency[n.Direction], s.LatencyOf = append(latency[n.Direction], x.Latency), x.LatencyOf
					break
				}
			}
		}
	}
	for _, way := range ways.keys {
		s := ways.at(way)
		s.Direction, s.Latency = way, three(stats.Merge(latency[way]...))
		out = append(out, *s)
	}
	return out
}

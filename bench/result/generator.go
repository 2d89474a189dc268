// SPDX-License-Identifier: Apache-2.0

package result

import (
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// Generator says how the generators themselves behaved, over all windows of a variant.
type Generator struct {
	// Late is the time from a request's intended send time until a generator handled the request: P50,
	// P99 and P99.9, if the sample is large enough. Open loop only.
	Late []stats.Step `json:"late,omitempty"`
	// Uncorrected is the latency from the actual send: P50, P99 and P99.9. It hides stalls, because a
	// late request seems fast.
	Uncorrected []stats.Step `json:"uncorrected,omitempty"`
	// CPU is the share of a processor that each generator used.
	CPU         float64 `json:"cpu"`
	Retransmits uint64  `json:"retransmits"`
	Lost        int     `json:"connectionsLost"`
	Payload     float64 `json:"payloadBitsPerSecond"` // rate of received payload
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

// carried returns those of the percentiles for which h has enough samples.
func carried(h *stats.Histogram, percentiles ...float64) (out []stats.Step) {
	for _, p := range percentiles {
		if v, err := stats.Percentile(h, p); err == nil {
			out = append(out, stats.Step{Percentile: p, NS: v})
		}
	}
	return out
}

func three(h *stats.Histogram) []stats.Step { return carried(h, 50, 99, 99.9) }

// A NoiseSummary is the noise in one direction, over all windows of a variant.
type NoiseSummary struct {
	Direction string `json:"direction"`
	// Asked is the requested payload rate, Achieved the rate that arrived. Both are means over the
	// windows.
	Asked    float64 `json:"askedBitsPerSecond"`
	Achieved float64 `json:"achievedBitsPerSecond"`
	// Retransmits are segments of TCP. Lost are datagrams of UDP; Datagrams is the number of all.
	Retransmits uint64 `json:"retransmits"`
	Lost        int64  `json:"lost,omitempty"`
	Datagrams   int64  `json:"datagrams,omitempty"`
	// Latency is the noise's own latency: P50, P99 and P99.9, if there are enough samples. LatencyOf
	// says which latency it is.
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
			// TCP's sender or UDP's receiver has measured the latency.
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

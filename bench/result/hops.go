// SPDX-License-Identifier: Apache-2.0

package result

import "github.com/niclane/niclane/bench/stats"

// Names of hops in the lab. HopClass is followed by the name of a lane.
const (
	HopSwitch       = "switch → SUT"
	HopCard         = "card → link"
	HopDefaultClass = "SUT: the default lane's class"
	HopClass        = "SUT: class of lane "
)

// A HopSummary is a queue on the way, over all windows of a variant.
type HopSummary struct {
	Name  string  `json:"name"`
	Reach Reach   `json:"reach"`
	Rate  int64   `json:"rateBitsPerSecond,omitempty"`
	Limit int64   `json:"limitBytes,omitempty"`
	Mean  float64 `json:"meanBytes"`
	// P99 of the backlog; -1 if there are too few samples.
	P99   int64  `json:"p99Bytes"`
	Max   int64  `json:"maxBytes"`
	Drops uint64 `json:"drops"`
	// MeanWait and MaxWait are the times, in ns, that a packet waits behind a backlog of Mean or Max
	// bytes; 0 if the rate is not known.
	MeanWait float64 `json:"meanWaitNs,omitempty"`
	MaxWait  float64 `json:"maxWaitNs,omitempty"`
}

func hops(windows map[int]*Window) (out []HopSummary) {
	var hops tally[string, []Hop]
	for _, i := range rounds(windows) {
		for _, h := range windows[i].Hops {
			same := hops.at(h.Name)
			*same = append(*same, h)
		}
	}
	for _, name := range hops.keys {
		same := *hops.at(name)
		s := HopSummary{Name: name, Reach: same[0].Reach, Rate: same[0].Rate, Limit: same[0].Limit}
		var samples []*stats.Histogram
		for _, h := range same {
			s.Drops += h.Drops
			samples = append(samples, h.Bytes)
		}
		all := stats.Merge(samples...)
		s.Mean, s.Max, s.P99 = all.Mean(), all.Max(), -1
		if p, err := stats.Percentile(all, 99); err == nil {
			s.P99 = p
		}
		if s.Rate > 0 {
			s.MeanWait = s.Mean * 8e9 / float64(s.Rate)
			s.MaxWait = float64(s.Max) * 8e9 / float64(s.Rate)
		}
		out = append(out, s)
	}
	return out
}

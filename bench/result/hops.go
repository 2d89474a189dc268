// SPDX-License-Identifier: Apache-2.0

package result

import "github.com/niclane/niclane/bench/stats"

// A HopSummary is a place where packets queue, over all windows of a variant.
type HopSummary struct {
	Name  string  `json:"name"`
	Reach Reach   `json:"reach"`
	Rate  int64   `json:"rateBitsPerSecond,omitempty"`
	Limit int64   `json:"limitBytes,omitempty"`
	Mean  float64 `json:"meanBytes"`
	// P99 of the samples of the backlog, -1 where they are too few.
	P99   int64  `json:"p99Bytes"`
	Max   int64  `json:"maxBytes"`
	Drops uint64 `json:"drops"`
	// MeanWait and MaxWait are what a packet waits behind Mean and Max, ns; 0
	// where the rate is not known.
	MeanWait float64 `json:"meanWaitNs,omitempty"`
	MaxWait  float64 `json:"maxWaitNs,omitempty"`
}

func hops(windows map[int]*Window) (out []HopSummary) {
	samples := map[string][]*stats.Histogram{}
	at := map[string]int{}
	for _, i := range rounds(windows) {
		for _, h := range windows[i].Hops {
			k, ok := at[h.Name]
			if !ok {
				k = len(out)
				at[h.Name] = k
				out = append(out, HopSummary{Name: h.Name, Reach: h.Reach, Rate: h.Rate, Limit: h.Limit})
			}
			out[k].Drops += h.Drops
			samples[h.Name] = append(samples[h.Name], h.Bytes)
		}
	}
	for i := range out {
		s := &out[i]
		all := stats.Merge(samples[s.Name]...)
		s.Mean, s.Max, s.P99 = all.Mean(), all.Max(), -1
		if p, err := stats.Percentile(all, 99); err == nil {
			s.P99 = p
		}
		if s.Rate > 0 {
			s.MeanWait = s.Mean * 8e9 / float64(s.Rate)
			s.MaxWait = float64(s.Max) * 8e9 / float64(s.Rate)
		}
	}
	return out
}

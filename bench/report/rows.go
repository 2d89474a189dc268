// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/niclane/niclane/bench/noise"
	"github.com/niclane/niclane/bench/stats"
)

// NoiseRow is the noise's own throughput in one direction and variant, within
// the time in which latency was counted.
type NoiseRow struct {
	Direction string `json:"direction"`
	Variant   string `json:"variant"`
	Goodput   int64  `json:"goodputBitsPerSecond"` // mean over the repeats
	// Repeats' goodputs, bits/s.
	Repeats     []int64 `json:"repeats"`
	Retransmits uint64  `json:"retransmits"`
	// Kept is the paired ratio to the variant without lane, nil for that one.
	Kept      *stats.Ratio     `json:"kept,omitempty"`
	Judgement *stats.Judgement `json:"judgement,omitempty"`
}

func noiseRows(r *Result) []NoiseRow {
	var directions []string
	for _, run := range r.Runs {
		for _, n := range run.Noise {
			if !slices.Contains(directions, n.Direction) {
				directions = append(directions, n.Direction)
			}
		}
	}
	var rows []NoiseRow
	for _, d := range directions {
		base := make(map[int]int64)
		for _, v := range r.Variants {
			row := NoiseRow{Direction: d, Variant: v.Name}
			var pairs []stats.Pair
			for _, run := range r.runs(v.Name) {
				for _, n := range run.Noise {
					if n.Direction != d {
						continue
					}
					got := during(n.Receiver, run)
					row.Repeats = append(row.Repeats, got)
					row.Goodput += got
					row.Retransmits += n.Sender.Retransmits
					if v.Name == NoLane {
						base[run.Repeat] = got
					} else if b, ok := base[run.Repeat]; ok {
						pairs = append(pairs, stats.Pair{Variant: got, Base: b})
					}
				}
			}
			if len(row.Repeats) == 0 {
				continue
			}
			row.Goodput /= int64(len(row.Repeats))
			if ratio, err := stats.PairedRatio(pairs); err == nil {
				row.Kept = &ratio
				if v.Name == Lane && r.Setup.NoiseGoal > 0 {
					row.Judgement = tooFew(r.Setup.NoiseGoal, fmt.Sprintf("%d pairs, want at least %d", ratio.N, minPairs))
					if ratio.N >= minPairs {
						j := stats.JudgeAtLeast(ratio, r.Setup.NoiseGoal)
						row.Judgement = &j
					}
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// during returns the goodput while latency was counted, or over the whole time
// when the time line does not cover that.
func during(n noise.Result, run *Run) int64 {
	if got, ok := n.Over(run.Load.StartMono, run.Load.StartMono+run.Load.Duration); ok {
		return got
	}
	return n.Goodput
}

// HopRow is the queue of one hop in one variant, from the merged samples.
type HopRow struct {
	Hop     string  `json:"hop"`
	Reach   Reach   `json:"reach"`
	Variant string  `json:"variant"`
	Samples int64   `json:"samples"`
	Min     int64   `json:"minBytes"`
	Mean    float64 `json:"meanBytes"`
	P99     Value   `json:"p99Bytes"` // NS holds bytes
	Max     int64   `json:"maxBytes"`
	Limit   int64   `json:"limitBytes"`
	Packets float64 `json:"meanPackets"`
	Drops   uint64  `json:"drops"`
	// MeanWait and MaxWait are the backlogs over the rate, ns; 0 if the rate is unknown.
	MeanWait int64 `json:"meanWaitNs"`
	MaxWait  int64 `json:"maxWaitNs"`
}

func hopRows(r *Result) []HopRow {
	var names []string
	for _, run := range r.Runs {
		for _, h := range run.Hops {
			if !slices.Contains(names, h.Name) {
				names = append(names, h.Name)
			}
		}
	}
	var rows []HopRow
	for _, name := range names {
		for _, v := range r.Variants {
			row := HopRow{Hop: name, Variant: v.Name}
			var bytes, packets []*stats.Histogram
			var rate int64
			for _, run := range r.runs(v.Name) {
				for _, h := range run.Hops {
					if h.Name != name {
						continue
					}
					bytes = append(bytes, h.Bytes)
					packets = append(packets, h.Packets)
					row.Drops += h.Drops
					row.Limit, row.Reach, rate = h.Limit, h.Reach, h.Rate
				}
			}
			all := stats.Merge(bytes...)
			if all.Count() == 0 {
				continue
			}
			row.Samples, row.Min, row.Mean, row.Max = all.Count(), all.Min(), all.Mean(), all.Max()
			row.P99 = value(all, 99)
			row.Packets = stats.Merge(packets...).Mean()
			if rate > 0 {
				row.MeanWait = int64(row.Mean * 8e9 / float64(rate))
				row.MaxWait = int64(float64(row.Max) * 8e9 / float64(rate))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// CPURow is CPU time as a share of one processor, over all repeats.
type CPURow struct {
	What    string  `json:"what"`
	Variant string  `json:"variant"`
	Share   float64 `json:"share"` // of one CPU
}

func cpuRows(r *Result) []CPURow {
	var rows []CPURow
	var names []string
	for _, run := range r.Runs {
		for _, c := range run.CPU {
			if !slices.Contains(names, c.What) {
				names = append(names, c.What)
			}
		}
	}
	for _, name := range names {
		for _, v := range r.Variants {
			var used, over int64
			for _, run := range r.runs(v.Name) {
				for _, c := range run.CPU {
					if c.What == name {
						used += c.Time
						over += cmp.Or(c.Over, run.Load.Duration)
					}
				}
			}
			if over > 0 {
				rows = append(rows, CPURow{name, v.Name, float64(used) / float64(over)})
			}
		}
	}
	return rows
}

// FloorRow is the wake-up lateness of one CPU with nothing else running.
type FloorRow struct {
	When   string  `json:"when"` // "before", "after", "amid (1)"
	CPU    int     `json:"cpu"`
	Values []Value `json:"percentiles"`
	Max    int64   `json:"maxNs"`
	Steal  float64 `json:"stealShare"`
	Busy   float64 `json:"busyShare"`
}

func floorRows(r *Result) ([]FloorRow, []stats.Step) {
	var rows []FloorRow
	var late []*stats.Histogram
	for i, h := range r.Hiccups {
		for _, c := range h.CPUs {
			row := FloorRow{When: when(r, i), CPU: c.CPU, Max: c.Late.Max()}
			late = append(late, c.Late)
			for _, p := range []float64{50, 99, 99.9} {
				row.Values = append(row.Values, value(c.Late, p))
			}
			if c.Total > 0 {
				row.Steal = float64(c.Steal) / float64(c.Total)
				row.Busy = float64(c.Busy) / float64(c.Total)
			}
			rows = append(rows, row)
		}
	}
	return rows, stats.Curve(stats.Merge(late...), curvePoints)
}

// SweepRow is one point of the sweep.
type SweepRow struct {
	Variant    string  `json:"variant"`
	NoiseShare float64 `json:"noiseShare"`
	Buffer     int64   `json:"bufferBytes"`
	P50        Value   `json:"p50"`
	P99        Value   `json:"p99"`
	NoiseRate  int64   `json:"noiseBitsPerSecond"`
}

func sweepRows(r *Result) []SweepRow {
	var rows []SweepRow
	for _, p := range r.Sweep {
		rows = append(rows, SweepRow{p.Variant, p.NoiseShare, p.Buffer, value(p.Latency, 50), value(p.Latency, 99), p.NoiseRate})
	}
	return rows
}

// numbers in a warning are what differs between repeats.
var numbers = regexp.MustCompile(`[0-9][0-9.,]*`)

// warnings lists the orchestrator's warnings and, for each variant, those of
// its runs: the first of those that differ only in numbers, and how many more
// repeats have it.
func warnings(r *Result) []string {
	list := slices.Clone(r.Warnings)
	for _, v := range r.Variants {
		type kind struct {
			first string
			more  int
			last  int // repeat
		}
		var kinds []*kind
		byText := make(map[string]*kind)
		for _, run := range r.runs(v.Name) {
			all := slices.Concat(run.Warnings, run.Load.Warnings)
			for _, n := range run.Noise {
				for _, w := range n.Sender.Warnings {
					all = append(all, "noise "+n.Direction+", sender: "+w)
				}
				for _, w := range n.Receiver.Warnings {
					all = append(all, "noise "+n.Direction+", receiver: "+w)
				}
			}
			for _, w := range all {
				text := numbers.ReplaceAllString(w, "#")
				k := byText[text]
				switch {
				case k == nil:
					k = &kind{first: fmt.Sprintf("%s, repeat %d: %s", v.Name, run.Repeat+1, w)}
					byText[text] = k
					kinds = append(kinds, k)
				case k.last != run.Repeat:
					k.more++
				}
				k.last = run.Repeat
			}
		}
		for _, k := range kinds {
			if k.more > 0 {
				k.first += fmt.Sprintf(" (and %d more repeats)", k.more)
			}
			list = append(list, k.first)
		}
	}
	return list
}

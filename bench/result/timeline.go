// SPDX-License-Identifier: Apache-2.0

package result

import (
	"github.com/niclane/niclane/bench/stats"
)

// A TimeLine is one round at a load point: one window of each variant, measured one after the
// other. Times are in ns from the start of each window.
type TimeLine struct {
	Point    string          `json:"point"`
	Repeat   int             `json:"repeat"` // number of the round, from 1
	Interval int64           `json:"intervalNs"`
	Variants []VariantInTime `json:"variants"`
}

// VariantInTime is the time line of one variant's window.
type VariantInTime struct {
	Name     string    `json:"name"`
	Duration int64     `json:"durationNs"`
	Latency  []Instant `json:"latency"`
	Noise    []Stream  `json:"noise,omitempty"`
	// Stalls are stalls of the generator's own threads.
	Stalls []Stall `json:"stalls,omitempty"`
}

// An Instant is the requests that were answered in one interval.
type Instant struct {
	At    int64 `json:"atNs"`
	Count int64 `json:"count"`
	// Median latency; -1 if there are too few requests.
	Median int64 `json:"p50Ns"`
	// Slowest is the latency of the slowest request.
	Slowest int64 `json:"maxNs"`
}

// A Stream is the noise in one direction, as it arrived.
type Stream struct {
	Direction string  `json:"direction"`
	Asked     float64 `json:"askedBitsPerSecond"`
	Interval  int64   `json:"intervalNs"`
	Start     int64   `json:"startNs"`
	// Rates are payload rates, in bit/s, one for each interval from Start.
	Rates []float64 `json:"bitsPerSecond"`
	// Trouble is, for each interval, the number of retransmitted segments (TCP) or lost datagrams
	// (UDP). It is empty if they were not counted.
	Trouble []int64 `json:"trouble,omitempty"`
}

// A Stall is a time in which a generator's thread had no processor.
type Stall struct {
	At int64 `json:"atNs"`
	Ns int64 `json:"ns"`
}

// slowest returns the round that has the slowest request of all repeats.
func (r *Result) slowest() *TimeLine {
	var worst *Window
	for i := range r.Windows {
		w := &r.Windows[i]
		if w.Purpose == Repeat && w.Load.Series != nil && w.Load.Series.Window() > 0 &&
			(worst == nil || w.Load.Latency.Max() > worst.Load.Latency.Max()) {
			worst = w
		}
	}
	if worst == nil {
		return nil
	}
	t := &TimeLine{Point: r.Points[worst.Point].Name(), Repeat: worst.Repeat + 1, Interval: worst.Load.Series.Window()}
	for _, v := range r.Variants {
		w, ok := r.windows(worst.Point, v.Name)[worst.Repeat]
		if ok && w.Load.Series != nil && w.Load.Series.Window() == t.Interval {
			t.Variants = append(t.Variants, w.inTime())
		}
	}
	return t
}

// at64 returns list[i], or 0 if list has no element i.
func at64[T int64 | uint64](list []T, i int) (zero T) {
	if i < 0 || i >= len(list) {
		return zero
	}
	return list[i]
}

func (w *Window) inTime() VariantInTime {
	l := &w.Load
	v := VariantInTime{Name: w.Variant, Duration: l.Duration}
	for i := range l.Series.Windows() {
		h := l.Series.HistogramOf(i)
		if h.Count() == 0 {
			continue
		}
		x := Instant{At: int64(i) * l.Series.Window(), Count: h.Count(), Median: -1, Slowest: h.Max()}
		if p, err := stats.Percentile(h, 50); err == nil {
			x.Median = p
		}
		v.Latency = append(v.Latency, x)
	}
	for _, n := range w.Noise {
		s := Stream{Direction: n.Direction, Asked: float64(n.Asked), Interval: n.Receiver.Interval}
		for i, b := range n.Receiver.Intervals {
			// Skip intervals of the noise outside the window, and its last one, which is incomplete.
			at := n.Receiver.StartMono + int64(i)*n.Receiver.Interval - l.StartMono
			if n.Receiver.Interval <= 0 || at < 0 || at+n.Receiver.Interval > l.Duration ||
				i == len(n.Receiver.Intervals)-1 {
				continue
			}
			if len(s.Rates) == 0 {
				s.Start = at
			}
			s.Rates = append(s.Rates, float64(b)*8e9/float64(n.Receiver.Interval))
			if lost := n.Receiver.IntervalLost; len(lost) > 0 {
				s.Trouble = append(s.Trouble, at64(lost, i))
			} else if again := n.Sender.IntervalRetransmits; len(again) > 0 && n.Sender.Interval > 0 {
				// The sender's intervals are different. Take the one in which this interval began.
				from := (n.Receiver.StartMono + int64(i)*n.Receiver.Interval - n.Sender.StartMono) / n.Sender.Interval
				s.Trouble = append(s.Trouble, int64(at64(again, int(from))))
			}
		}
		if len(s.Rates) > 0 { // otherwise the receiver has the clock of another host
			v.Noise = append(v.Noise, s)
		}
	}
	for _, x := range l.Stalls {
		v.Stalls = append(v.Stalls, Stall{x.AtMono - l.StartMono, x.Ns})
	}
	return v
}

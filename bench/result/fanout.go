// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/fanout"
)

// FanOutProbability is the default probability with which all servers must answer in time. The
// figures of Dean and Barroso use the same.
const FanOutProbability = 0.99

// A FanOut is for one load point. For each of Times, it says how many servers one request can ask
// in parallel if all must answer within this time.
type FanOut struct {
	Point       string          `json:"point"`
	Probability float64         `json:"probability"`
	Base        string          `json:"base"`
	Times       []int64         `json:"timesNs"`
	Variants    []FanOutVariant `json:"variants"`
}

// FanOutVariant is one variant's part of a FanOut.
type FanOutVariant struct {
	Name    string          `json:"name"`
	Answers []fanout.Answer `json:"answers"` // one for each of Times
	// More is the factor between this variant's number of servers and the base's, for each of Times.
	// If there is no factor, it is a text that says why, or stats.Same. It is nil for the base.
	More []string `json:"more,omitempty"`
	// Missing is the reason why there are no answers.
	Missing string `json:"missing,omitempty"`
}

// FanOuts computes a FanOut for each load point. probability must be more than 0 and less than 1.
func FanOuts(r *Result, probability float64) ([]FanOut, error) {
	if !(probability > 0 && probability < 1) {
		return nil, fmt.Errorf("fan-out: probability %v: want more than 0 and less than 1", probability)
	}
	out := make([]FanOut, len(r.Points))
	parallel(len(out), func(i int) { out[i] = r.fanOut(i, probability) })
	return out, nil
}

func (r *Result) fanOut(point int, probability float64) FanOut {
	f := FanOut{Point: r.Points[point].Name(), Probability: probability, Base: r.Experiment.Base}
	var samples []*stats.Sample
	var all []*stats.Histogram
	var base *stats.Sample
	for _, v := range r.Variants {
		windows := r.windows(point, v.Name)
		if len(windows) == 0 {
			continue
		}
		h, sample := pool(windows, toLastByte)
		all, samples = append(all, h), append(samples, sample)
		f.Variants = append(f.Variants, FanOutVariant{Name: v.Name})
		if v.Name == f.Base {
			base = sample
		}
	}
	f.Times = responseTimes(all)
	for k := range f.Variants {
		f.Variants[k].answer(base, samples[k], f.Times, probability, f.Variants[k].Name == f.Base)
	}
	return f
}

func (v *FanOutVariant) answer(base, sample *stats.Sample, times []int64, p float64, isBase bool) {
	// The base is compared with itself, and so is each variant if there is no base.
	rows, err := fanout.Compare(cmp.Or(base, sample), sample, times, p)
	if err != nil {
		v.Missing = refusal(err)
		return
	}
	for _, row := range rows {
		v.Answers = append(v.Answers, row.With)
		if base != nil && !isBase {
			v.More = append(v.More, row.Text)
		}
	}
}

// responseTimes returns round times. They reach from the fastest median to the slowest percentile,
// up to P99.9, that a sample can support.
func responseTimes(all []*stats.Histogram) (out []int64) {
	low, high := int64(math.MaxInt64), int64(0)
	for _, h := range all {
		for _, p := range []float64{50, 90, 99, 99.9} {
			if v, err := stats.Percentile(h, p); err == nil {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return nil
	}
	for decade := math.Pow(10, math.Floor(math.Log10(float64(low)))); decade <= float64(high); decade *= 10 {
		for _, m := range []float64{1, 2, 3, 5} {
			if t := int64(m * decade); t >= low && len(out) < 24 {
				out = append(out, t)
				if t >= high {
					return out
				}
			}
		}
	}
	return out
}

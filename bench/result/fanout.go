// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/fanout"
)

// FanOutProbability is the default probability that all servers answer in time, as in the
// figures of Dean and Barroso.
const FanOutProbability = 0.99

// A FanOut says, for a load point, how many servers one request can ask in parallel if all must
// answer within each of Times.
type FanOut struct {
	Point       string          `json:"point"`
	Probability float64         `json:"probability"`
	Base        string          `json:"base"`
	Times       []int64         `json:"timesNs"`
	Variants    []FanOutVariant `json:"variants"`
}

// FanOutVariant is one variant.
type FanOutVariant struct {
	Name    string          `json:"name"`
	Answers []fanout.Answer `json:"answers"` // for each of Times
	// More is the factor between the number of servers and the base's, for each of Times. It is
	// a text where there are none, or stats.Same; nil for the base.
	More []string `json:"more,omitempty"`
	// Missing is why there are no answers.
	Missing string `json:"missing,omitempty"`
}

// FanOuts computes a FanOut for each load point. probability is from 0 to 1, exclusive.
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
	// The base itself, or a variant without a base, is compared with itself.
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

// responseTimes returns round times from the fastest median to the slowest P99.9 that a sample
// can support.
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

// SPDX-License-Identifier: Apache-2.0

package delayserver

import (
	"math"
	"math/rand/v2"
)

// A Distribution is a distribution of delays, in ns. A share of the delays is exponential with mean
// Fast. Each other delay is From plus an exponential delay with mean Slow.
type Distribution struct {
	Share            float64 // share of the delays with mean Fast, 0 to 1
	Fast, From, Slow float64
}

// Exponential returns the exponential distribution with the given mean.
func Exponential(mean float64) Distribution { return Distribution{Share: 1, Fast: mean} }

func (d Distribution) draw(rng *rand.Rand) int64 {
	switch {
	case d == Distribution{}:
		return 0
	case d.Share >= 1 || rng.Float64() < d.Share:
		return int64(rng.ExpFloat64() * d.Fast)
	}
	return int64(d.From + rng.ExpFloat64()*d.Slow)
}

// Beyond returns the share of delays above t.
func (d Distribution) Beyond(t float64) float64 {
	slow := 1.0
	if t > d.From {
		slow = math.Exp(-(t - d.From) / d.Slow)
	}
	if d.Share >= 1 {
		slow = 0
	}
	return d.Share*math.Exp(-t/d.Fast) + (1-d.Share)*slow
}

// Percentile returns percentile p, with an error of at most 1 ns.
func (d Distribution) Percentile(p float64) float64 {
	low, high := 0.0, 1.0
	for d.Beyond(high) > 1-p/100 {
		high *= 2
	}
	for high-low > 1 {
		if middle := (low + high) / 2; d.Beyond(middle) > 1-p/100 {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A server is a simulation whose latencies have a known distribution.
type server struct {
	name string
	// run calls record for the n requests of one repeat. There are 10,000 requests a second, and 1000
	// in a window.
	run func(rng *rand.Rand, n int, record func(v float64))
	// beyond is P(latency > x); nil if only quantiles are known.
	beyond    func(x float64) float64
	quantiles map[float64]float64
}

// quantile returns a quantile of the true distribution. It finds the quantile by bisection.
func (s server) quantile(u float64) float64 {
	if s.beyond == nil {
		return s.quantiles[u]
	}
	lo, hi := 0.0, 1e11
	for range 200 {
		if mid := (lo + hi) / 2; s.beyond(mid) > 1-u {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func independent(name string, draw func(rng *rand.Rand) float64, beyond func(float64) float64) server {
	return server{name: name, run: func(rng *rand.Rand, n int, record func(float64)) {
		for range n {
			record(draw(rng))
		}
	}, beyond: beyond}
}

func normalTail(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

const us = 1e3

// autoregressive returns a server with lognormal latencies. Two requests with n-1 requests between
// them have a correlation of phi^n.
func autoregressive(phi, sigma float64) server {
	return server{name: fmt.Sprintf("AR(%v)", phi), run: func(rng *rand.Rand, n int, record func(float64)) {
		z := rng.NormFloat64()
		for range n {
			record(100 * us * math.Exp(sigma*z))
			z = phi*z + math.Sqrt(1-phi*phi)*rng.NormFloat64()
		}
	}, beyond: func(x float64) float64 { return normalTail(math.Log(x/100/us) / sigma) }}
}

// queue returns an M/M/1 server: Poisson arrivals, exponential service times, one server. The time
// in the system is exponential with mean service/(1-load).
func queue(load float64) server {
	const service = 50 * us
	return server{name: fmt.Sprintf("M/M/1 at %v", load), run: func(rng *rand.Rand, n int, record func(float64)) {
		wait := rng.ExpFloat64() * service / (1 - load)
		if rng.Float64() > load {
			wait = 0
		}
		for range n {
			t := wait + rng.ExpFloat64()*service
			record(t)
			wait = max(t-rng.ExpFloat64()*service/load, 0)
		}
	}, beyond: func(x float64) float64 { return math.Exp(-x * (1 - load) / service) }}
}

// stalling returns a server that stops at random. It runs for up seconds on average, then stops for
// an exponential time with mean stall seconds. Every request in that time waits until the stop
// ends.
func stalling(up, stall float64) server {
	const fast = 50 * us
	pi, d := stall/(up+stall), stall*1e9
	return server{name: fmt.Sprintf("stalls of %vs", stall), run: func(rng *rand.Rand, n int, record func(float64)) {
		const gap = 1e5 // ns
		down := rng.Float64() < pi
		left := rng.ExpFloat64() * up * 1e9
		if down {
			left = rng.ExpFloat64() * d
		}
		for range n {
			for left < 0 {
				down = !down
				if down {
					left += rng.ExpFloat64() * d
				} else {
					left += rng.ExpFloat64() * up * 1e9
				}
			}
			v := rng.ExpFloat64() * fast
			if down {
				v += left
			}
			record(v)
			left -= rng.ExpFloat64() * gap
		}
	}, beyond: func(x float64) float64 {
		sum := (d*math.Exp(-x/d) - fast*math.Exp(-x/fast)) / (d - fast)
		return (1-pi)*math.Exp(-x/fast) + pi*sum
	}}
}

// stallingQueue returns an M/G/1 server: a queue at half load. Twice a second it stops for about 5
// ms (exponential), and then works off the backlog. Its quantile comes from a run of 10^9 requests.
func stallingQueue() server {
	const gap, service, stall, every = 100 * us, 50 * us, 5000 * us, 5000 // stall of 5 ms, once in 5000 requests
	return server{name: "M/G/1 with stalls", run: func(rng *rand.Rand, n int, record func(float64)) {
		wait := 0.0
		for i := range n + 10_000 { // requests of the first second are not recorded
			t := wait + rng.ExpFloat64()*service
			if rng.IntN(every) == 0 {
				t += rng.ExpFloat64() * stall
			}
			if i >= 10_000 {
				record(t)
			}
			wait = max(t-rng.ExpFloat64()*gap, 0)
		}
	}, quantiles: map[float64]float64{0.99: 3783.7 * us}}
}

// pareto returns a server whose latencies have a Pareto distribution. For alpha up to 2, its
// variance is infinite.
func pareto(alpha float64) server {
	return independent("Pareto", func(rng *rand.Rand) float64 {
		return 50 * us * math.Pow(1-rng.Float64(), -1/alpha)
	}, func(x float64) float64 { return min(1, math.Pow(x/50/us, -alpha)) })
}

func exponential() server {
	return independent("exponential", func(rng *rand.Rand) float64 { return rng.ExpFloat64() * 100 * us },
		func(x float64) float64 { return math.Exp(-x / 100 / us) })
}

// bimodal returns a server with fast and slow requests, and a gap between them. slow is the share
// of slow requests. The tested percentile lies next to the gap.
func bimodal(slow float64) server {
	return independent(fmt.Sprintf("bimodal(%v)", slow), func(rng *rand.Rand) float64 {
		if rng.Float64() < slow {
			return 5000*us + rng.ExpFloat64()*500*us
		}
		return rng.ExpFloat64() * 100 * us
	}, func(x float64) float64 {
		b := math.Exp(-x / 100 / us)
		if x < 5000*us {
			return (1-slow)*b + slow
		}
		return (1-slow)*b + slow*math.Exp(-(x-5000*us)/500/us)
	})
}

// moody returns a server with a random factor for each repeat. The factors are lognormal with
// sigma.
func moody(sigma float64) server {
	return server{name: fmt.Sprintf("moody(%v)", sigma), run: func(rng *rand.Rand, n int, record func(float64)) {
		f := 100 * us * math.Exp(sigma*rng.NormFloat64())
		for range n {
			record(f * rng.ExpFloat64())
		}
	}, beyond: func(x float64) float64 { // integrates the normal distribution over ±8 sigma by the trapezoid rule
		const m = 2000
		sum := 0.0
		for i := range m {
			z := -8 + 16*(float64(i)+0.5)/m
			sum += math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) * 16 / m * math.Exp(-x/(100*us*math.Exp(sigma*z)))
		}
		return sum
	}}
}

// sample simulates repeats of n requests each, in windows of 1000 requests.
func sample(rng *rand.Rand, s server, repeats, n int) []*Series {
	var ss []*Series
	for range repeats {
		const perWindow = 1000
		r := NewRecorder(DefaultWindow, n/perWindow)
		i := 0
		s.run(rng, n, func(v float64) {
			r.Advance(i / perWindow)
			r.Record(int64(v))
			i++
		})
		ss = append(ss, r.Series())
	}
	return ss
}

// SPDX-License-Identifier: Apache-2.0

// Package fanout computes the effect of tail latency on a request that asks many servers at once
// and needs all answers. It says how many servers such a request can ask in a given time (Dean and
// Barroso, The Tail at Scale, CACM 56, 2013).
//
// It assumes that every server answers as fast as the measured one, and that servers are slow
// independently of each other. Servers that share a switch, or that pause at the same times, are
// not independent. It refuses answers that depend on a part of the tail that the sample cannot
// support. It is pure: no clock, no files.
package fanout

import (
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/stats"
)

// Most is the largest number of servers in an Answer.
const Most = 1 << 40

// An Answer is how many servers one request can ask in parallel.
type Answer struct {
	Time        int64   `json:"timeNs"`      // all servers must answer within this time
	Probability float64 `json:"probability"` // least probability that all do
	// Servers is the largest n with F(t)^n ≥ p, which is floor(ln p / ln F(t)). F(t) is the
	// probability that one server answers in time, F(t)^n that all n do. 0: not even one server.
	Servers int64 `json:"servers"`
	// Low and High are the ends of the 95 % interval of Servers. High is Most if the sample gives no
	// upper bound.
	Low  int64 `json:"low"`
	High int64 `json:"high"`
	// Missing is the reason why Servers is not known (and is 0); "" if it is known. Low is valid in
	// both cases.
	Missing string      `json:"missing,omitempty"`
	Share   stats.Share `json:"share"` // F(t)
}

// String renders the answer for a table.
func (a Answer) String() string {
	switch {
	case a.Missing != "":
		return fmt.Sprintf("at least %d (%s)", a.Low, a.Missing)
	case a.High == Most:
		return fmt.Sprintf("%d (%d or more)", a.Servers, a.Low)
	}
	return fmt.Sprintf("%d (%d to %d)", a.Servers, a.Low, a.High)
}

// Servers returns the Answer for a response time t in ns and a probability p, more than 0 and less
// than 1. The interval of F(t) comes from stats.Sample.Within, which takes into account that
// samples depend on each other.
func Servers(s *stats.Sample, t int64, p float64) (Answer, error) {
	if !(p > 0 && p < 1) {
		return Answer{}, fmt.Errorf("fan-out: probability %v: want more than 0 and less than 1", p)
	}
	share, err := s.Within(t)
	if err != nil {
		return Answer{}, fmt.Errorf("fan-out: %w", err)
	}
	a := Answer{
		Time: t, Probability: p, Share: share, Missing: share.Missing,
		Low: servers(share.Low, p), High: servers(share.High, p),
	}
	if a.Missing == "" {
		a.Servers = servers(share.Within, p)
	}
	return a, nil
}

// servers returns the largest n with within^n >= p.
func servers(within, p float64) int64 {
	switch {
	case within <= 0:
		return 0
	case within >= 1:
		return Most
	}
	// 1e-12 corrects rounding errors of the logarithms. Otherwise n could be 0 in place of 1.
	n := math.Log(p) / math.Log(within)
	return int64(min(n*(1+1e-12), Most))
}

// Time is the inverse of Servers: it returns the time in which n servers all answer with
// probability p. This is the percentile 100·p^(1/n) of one server.
func Time(s *stats.Sample, n int64, p float64) (stats.Estimate, error) {
	if n < 1 || !(p > 0 && p < 1) {
		return stats.Estimate{}, fmt.Errorf("fan-out: %d servers with probability %v: want at least 1, and more "+
			"than 0 and less than 1", n, p)
	}
	e, err := s.Interval(100 * math.Pow(p, 1/float64(n)))
	if err != nil {
		return e, fmt.Errorf("fan-out to %d: %w", n, err)
	}
	return e, nil
}

// A Row compares two variants at one response time.
type Row struct {
	Time    int64  `json:"timeNs"`
	Without Answer `json:"without"`
	With    Answer `json:"with"`
	// Text is the factor by which the lane increases the number of servers. It begins with "at least"
	// or "at most" if an answer is only a bound. If a variant allows no server, it is a text that says
	// so. It is stats.Same if the intervals overlap.
	Text string `json:"text"`
}

// Compare computes a Row for each response time.
func Compare(without, with *stats.Sample, times []int64, p float64) ([]Row, error) {
	var rows []Row
	for _, t := range times {
		r := Row{Time: t}
		var err error
		if r.Without, err = Servers(without, t, p); err != nil {
			return nil, fmt.Errorf("without the lane: %w", err)
		}
		if r.With, err = Servers(with, t, p); err != nil {
			return nil, fmt.Errorf("with the lane: %w", err)
		}
		r.Text = beside(r.Without, r.With)
		rows = append(rows, r)
	}
	return rows, nil
}

// beside renders how many times as many servers b allows as a does. If an answer is Missing, only
// its Low is known.
func beside(a, b Answer) string {
	times := func(b, a int64) string { return fmt.Sprintf("×%.3g", float64(b)/float64(a)) }
	more, less := a.Missing == "" && b.Low > a.High, b.Missing == "" && a.Low > b.High
	switch {
	case !more && !less:
		return stats.Same
	case more && a.Servers == 0:
		return "where the base has none"
	case less && b.Servers == 0 && a.Missing == "":
		return fmt.Sprintf("where the base has %d", a.Servers)
	case less && b.Servers == 0:
		return fmt.Sprintf("where the base has at least %d", a.Low)
	case b.Missing != "" && a.High > 0:
		return "at least " + times(b.Low, a.High)
	case a.Missing != "":
		return "at most " + times(b.High, a.Low)
	}
	return times(b.Servers, a.Servers)
}

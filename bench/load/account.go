// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"

	"github.com/niclane/niclane/bench/load/proto"
	"github.com/niclane/niclane/bench/stats"
)

// pending is a request that is due and not yet answered.
type pending struct {
	intended int64
	noticed  int64 // when the generator came to the request
	actual   int64 // time of the send, once sent
	first    int64 // time of the reply's first byte, once received; 0 before
	ticket   proto.Ticket
	counted  bool
}

// account is the measurement of one step by one worker. Times are those of the worker's clock, ns.
// Between newAccount and close it allocates no memory, except for windows with unusually wide
// distributions.
type account struct {
	open, spins      bool
	from             int64
	window, timeout  int64
	res              Result
	latency, first   *stats.Recorder
	uncorrected      *stats.Histogram
	lateness, wakeup *stats.Histogram
	waiting, hiccups *stats.Histogram
	statuses         [600]int64
	stalls           stalls
	gaps             *stats.Histogram
	last             int64   // when the generator came to the last request; 0: to none
	sends            []int64 // number of requests, by window
}

// maxPrepared is the largest number of windows that are allocated beforehand: 10 minutes of windows
// of 100 ms, in 36 MB.
const maxPrepared = 6000

// newAccount returns an account that counts from the time from, for the given duration.
func newAccount(c *Config, from, duration int64) *account {
	a := &account{open: c.Mode == Open, spins: c.Spin > 0, from: from, window: c.Window, timeout: c.Timeout}
	windows := int(min(duration/c.Window+8, maxPrepared))
	a.latency, a.uncorrected = stats.NewRecorder(c.Window, windows), stats.NewHistogram()
	if c.Protocol == HTTP {
		a.first = stats.NewRecorder(c.Window, windows)
	}
	a.lateness, a.wakeup = stats.NewHistogram(), stats.NewHistogram()
	a.waiting, a.hiccups = stats.NewHistogram(), stats.NewHistogram()
	a.stalls = newStalls()
	if a.open {
		a.gaps = stats.NewHistogram()
		a.sends = make([]int64, 0, windows)
	}
	a.res.Mode = c.Mode
	return a
}

// due accounts for a request when the generator has come to it.
func (a *account) due(p *pending) {
	if p.counted {
		a.res.Intended++
		if a.open {
			a.wakeup.Record(p.noticed - p.intended)
			a.arrival(p.noticed)
		}
	}
}

// arrival records the time at which the generator came to a request.
func (a *account) arrival(now int64) {
	if a.last > 0 {
		a.gaps.Record(now - a.last)
	}
	a.last = now
	w := int((now - a.from) / a.window)
	for len(a.sends) <= w {
		a.sends = append(a.sends, 0)
	}
	a.sends[w]++
}

// sent accounts for a request that was sent.
func (a *account) sent(p *pending, waited bool) {
	if p.ticket.Op == proto.Set {
		a.res.Work.Sets++
	} else {
		a.res.Work.Gets++
	}
	if p.counted {
		a.res.Sent++
		if a.open {
			a.lateness.Record(p.actual - p.intended)
			if waited {
				a.waiting.Record(p.actual - p.noticed)
			}
		}
	}
}

// done accounts for a reply that was complete at time now.
func (a *account) done(p *pending, r proto.Reply, now int64) {
	switch {
	case p.ticket.Op == proto.Set:
		if r.Outcome == proto.Good {
			a.res.Work.Stored++
		}
	case r.Outcome == proto.Miss:
		a.res.Work.GetMisses++
	case r.Outcome == proto.Good || r.Payload > 0:
		a.res.Work.GetHits++
	}
	if !p.counted {
		return
	}
	latency := now - p.intended
	a.advance(now)
	a.latency.Record(latency)
	a.uncorrected.Record(now - p.actual)
	if a.first != nil {
		a.first.Record(p.first - p.intended)
	}
	a.res.Completed++
	a.res.Payload += r.Payload
	a.statuses[r.Status]++
	switch r.Outcome {
	case proto.Good:
		a.res.Hits++
	case proto.Miss:
		a.res.Misses++
	default:
		a.res.Errors++
	}
	if latency > a.timeout {
		a.res.TimedOut++
	}
}

// lost accounts for a request that will not be answered. Its latency is the time it has waited,
// at least the timeout: a server must not look faster because it breaks connections.
func (a *account) lost(p *pending, wasSent bool, now int64) {
	if wasSent {
		a.res.Work.Unanswered++
	}
	if !p.counted {
		return
	}
	a.res.Unanswered++
	a.advance(now)
	waited := max(now-p.intended, a.timeout)
	a.latency.Record(waited)
	if a.first != nil {
		if p.first > 0 {
			a.first.Record(p.first - p.intended)
		} else {
			a.first.Record(waited)
		}
	}
	if !wasSent && a.open { // the request never left the generator
		a.lateness.Record(waited)
		a.waiting.Record(max(now-p.noticed, 0))
	}
}

func (a *account) advance(now int64) {
	w := int((now - a.from) / a.window)
	a.latency.Advance(w)
	if a.first != nil {
		a.first.Advance(w)
	}
}

// fault keeps the first error's text.
func (a *account) fault(text string) {
	if a.res.FirstError == "" {
		a.res.FirstError = text
	}
}

// close returns the result of a step that counted for duration. The account must not be used
// after.
func (a *account) close(duration int64) Result {
	r := a.res
	r.Duration = duration
	r.Series = a.latency.Series()
	r.Latency = r.Series.Histogram()
	if a.first != nil {
		r.FirstByteSeries = a.first.Series()
		r.FirstByte = r.FirstByteSeries.Histogram()
	}
	r.Uncorrected, r.Lateness, r.Wakeup, r.Waiting = a.uncorrected, a.lateness, a.wakeup, a.waiting
	if a.spins {
		r.Hiccups = a.hiccups
	}
	r.Stalls, r.StallsLeft = a.stalls.list(), a.stalls.left
	if a.open {
		r.Gaps = a.gaps
		// A window that is cut, or lies after the end, says nothing about the rate.
		r.Sends = a.sends[:min(len(a.sends), int(duration/a.window))]
	}
	for status, n := range a.statuses {
		if n > 0 && status > 0 {
			if r.Statuses == nil {
				r.Statuses = make(map[int]int64)
			}
			r.Statuses[status] = n
		}
	}
	r.rates()
	return r
}

func (r *Result) rates() {
	seconds := float64(r.Duration) / 1e9
	r.OfferedRate = float64(r.Intended) / seconds
	r.AchievedRate = float64(r.Completed) / seconds
}

// add adds the counts of o to r, except times and series, which add up differently for parallel
// and for successive parts.
func (r *Result) add(o *Result) {
	r.Intended += o.Intended
	r.Sent += o.Sent
	r.Completed += o.Completed
	r.Hits += o.Hits
	r.Misses += o.Misses
	r.Errors += o.Errors
	r.TimedOut += o.TimedOut
	r.Unanswered += o.Unanswered
	r.ConnectionsLost += o.ConnectionsLost
	r.Reconnects += o.Reconnects
	r.ConnectErrors += o.ConnectErrors
	if r.FirstError == "" {
		r.FirstError = o.FirstError
	}
	if len(o.Statuses) > 0 {
		r.Statuses = maps.Clone(r.Statuses)
		if r.Statuses == nil {
			r.Statuses = make(map[int]int64)
		}
		for status, n := range o.Statuses {
			r.Statuses[status] += n
		}
	}
	if len(o.Ciphers) > 0 {
		r.Ciphers = maps.Clone(r.Ciphers)
		if r.Ciphers == nil {
			r.Ciphers = make(map[string]int64)
		}
		for cipher, n := range o.Ciphers {
			r.Ciphers[cipher] += n
		}
	}
	r.Payload += o.Payload
	r.Latency = stats.Merge(r.Latency, o.Latency)
	if o.FirstByte != nil {
		r.FirstByte = stats.Merge(r.FirstByte, o.FirstByte)
	}
	r.Uncorrected = stats.Merge(r.Uncorrected, o.Uncorrected)
	r.Lateness = stats.Merge(r.Lateness, o.Lateness)
	r.Wakeup = stats.Merge(r.Wakeup, o.Wakeup)
	r.Waiting = stats.Merge(r.Waiting, o.Waiting)
	if o.Hiccups != nil {
		r.Hiccups = stats.Merge(r.Hiccups, o.Hiccups)
	}
	r.addStalls(o)
	r.CPUTime += o.CPUTime
	r.Away += o.Away
	r.Work.add(o.Work)
	r.Partial = r.Partial || o.Partial
}

// warn adds the reasons to doubt r to its warnings. r is the result of one step of all workers.
func (r *Result) warn(c *Config, threads int) {
	warn := func(format string, a ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, a...)) }
	if r.Partial {
		warn("the run was ended before its time")
	}
	if n := r.Unanswered; n > 0 {
		warn("%d of %d requests were never answered", n, r.Intended)
	}
	if n := r.Misses + r.Errors; n > 0 {
		warn("%d misses and %d errors among %d responses", r.Misses, r.Errors, r.Completed)
	}
	if r.ConnectionsLost > 0 {
		warn("%d of %d connections were lost", r.ConnectionsLost, c.Connections)
	}
	if r.AchievedRate < 0.95*r.OfferedRate {
		warn("%.0f requests/s were answered of %.0f due", r.AchievedRate, r.OfferedRate)
	}
	if busy := float64(r.CPUTime) / float64(r.Duration) / float64(threads); busy > 0.9 && c.Spin == 0 &&
		c.Mode == Open {
		warn("the generator used %.0f %% of its processor: it is saturated", 100*busy)
	}
	// If the generator itself causes more than half of the latency, it determines the result,
	// not the server.
	if w, l := r.Wakeup.ValueAt(50), r.Latency.ValueAt(50); l > 0 && 2*w > l {
		warn("the generator noticed half of the requests more than %.1f us after they were due; P50 latency is %.1f us",
			float64(w)/1e3, float64(l)/1e3)
	}
}

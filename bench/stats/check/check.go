// SPDX-License-Identifier: Apache-2.0

// Package check compares a measurement with facts that are true of any correct measurement:
// Little's law holds. The client has spare processor time. The server's counters match what was
// sent. The host is quieter than the effect. Requests were sent when they were due.
//
// A check returns a warning with its numbers, which is shown with the result. It does not correct
// or hide anything. No warning does not prove that the measurement is right. Checks are pure: no
// clock, no files.
package check

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/niclane/niclane/bench/stats"
)

// A Warning is a reason to doubt a result.
type Warning struct {
	Check  string             `json:"check"` // "littles-law", "client-saturated", ...
	Text   string             `json:"text"`
	Values map[string]float64 `json:"values"`
}

func (w Warning) String() string { return w.Text }

// ns prints a time with three significant digits.
func ns(v float64) string {
	d := time.Duration(v)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.String()
}

// littleTolerance is the largest accepted difference between rate × latency and the number in
// flight, as a share. It covers the ends of a window, where load starts and stops, and HDR's 0.1 %.
const littleTolerance = 0.05

// Little checks a closed loop by Little's law (1961, Operations Research 9). By this law, the
// number of requests in flight is the rate (per second) times the mean latency (given in ns).
// Callers must not use it for open loops.
func Little(inFlight, rate, meanLatency float64) []Warning {
	product := rate * meanLatency / 1e9
	off := product/inFlight - 1
	if math.Abs(off) <= littleTolerance {
		return nil
	}
	why := "latency leaves something out, or connections were idle"
	if off > 0 {
		why = "latency includes time in which nothing was in flight, or latency and rate are of different requests"
	}
	return []Warning{{
		Check: "littles-law",
		Text: fmt.Sprintf("Little's law: %.0f requests/s × %s mean latency are %.1f in flight, but %.1f were (%+.0f "+
			"%%): %s",
			rate, ns(meanLatency), product, inFlight, 100*off, why),
		Values: map[string]float64{"inFlight": inFlight, "ratePerSecond": rate, "meanLatencyNs": meanLatency,
			"product": product},
	}}
}

// Client is what a generator reports about itself.
type Client struct {
	// Own is the generator's own part of the latency: the time from when a request was due until the
	// generator's thread noticed it.
	Own *stats.Histogram
	// Latency is the latency of the same requests.
	Latency *stats.Histogram
	// CPUTime is the processor time, in ns, that the generator's thread used in Duration.
	CPUTime, Duration int64
	// Spins says that the generator polls. Then CPUTime does not show whether it is overloaded.
	Spins bool
}

const (
	ownShare = 0.5 // share of a percentile that the generator may cause
	cpuShare = 0.9 // share of its processor that a generator may use
)

// Saturated warns if the client, not the server, determines the result.
func Saturated(c Client) (warnings []Warning) {
	for _, p := range []float64{50, 99, 99.9, 99.99, 99.999} {
		own, err := stats.Percentile(c.Own, p)
		all, err2 := stats.Percentile(c.Latency, p)
		if cmp.Or(err, err2) != nil {
			break
		}
		if all > 0 && float64(own) > ownShare*float64(all) {
			warnings = append(warnings, Warning{
				Check: "client-saturated",
				Text: fmt.Sprintf("P%v is the generator's own delay: it noticed requests %s late, and latency is %s",
					p, ns(float64(own)), ns(float64(all))),
				Values: map[string]float64{"p": p, "ownNs": float64(own), "latencyNs": float64(all)},
			})
		}
	}
	if c.Duration > 0 && !c.Spins {
		if share := float64(c.CPUTime) / float64(c.Duration); share > cpuShare {
			warnings = append(warnings, Warning{
				Check:  "client-saturated",
				Text:   fmt.Sprintf("the generator used %.0f %% of its processor: it is saturated", 100*share),
				Values: map[string]float64{"cpuShare": share},
			})
		}
	}
	return warnings
}

// A Count is a quantity that client and server both count: gets, sets, hits, keys, bytes.
type Count struct {
	Name   string
	Sent   int64 // as counted by the client
	Served int64 // as counted by the server, over the same requests
}

// Counters returns a warning for each count in which server and client differ by more than
// tolerance. tolerance is a share of the client's count; if it is 0, they must be equal.
func Counters(counts []Count, tolerance float64) (warnings []Warning) {
	for _, c := range counts {
		off := math.Abs(float64(c.Served - c.Sent))
		if off <= tolerance*float64(c.Sent) {
			continue
		}
		share := ""
		if c.Sent > 0 {
			share = fmt.Sprintf(" (%+.2g %%)", 100*float64(c.Served-c.Sent)/float64(c.Sent))
		}
		warnings = append(warnings, Warning{
			Check: "server-counters",
			Text: fmt.Sprintf("%s: the client counted %d, the server %d%s: the workload was not the one asked for, or "+
				"another program used the server", c.Name, c.Sent, c.Served, share),
			Values: map[string]float64{"client": float64(c.Sent), "server": float64(c.Served)},
		})
	}
	return warnings
}

// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Requests says how many servers a rate of requests takes within an SLA, as the conclusion of the
// Kubernetes paper does without figures.
type Requests struct {
	SLA string `json:"sla"` // "P99.9 ≤ 1.00 ms"
	// Rate is the rate of all servers together, per second.
	Rate float64 `json:"ratePerSecond"`
	Old  Serving `json:"old"`
	New  Serving `json:"new"`
	// Saved is the difference of both numbers of servers; nil if one of them is not known.
	Saved *int `json:"savedServers,omitempty"`
}

// Serving is one kind of server within an SLA.
type Serving struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// Rate is the highest rate of one server that was measured within the SLA, per second; 0: none.
	// Beyond is the lowest rate above it that was not within the SLA; 0: not known.
	Rate   float64 `json:"ratePerSecond"`
	Beyond float64 `json:"beyondPerSecond,omitempty"`
	// Servers is how many serve the whole rate at Rate each; 0: not known. At least AtLeast are needed,
	// because each serves less than Beyond; 0: not known.
	Servers int `json:"servers,omitempty"`
	AtLeast int `json:"atLeastServers,omitempty"`
}

// mostRequests is the largest rate of ForRequests, per second.
const mostRequests = 1e15

// ForRequests computes the numbers of servers. A rate that is not above 0 is an error.
func ForRequests(sla string, rate float64, old, next Serving) (Requests, error) {
	if !(rate > 0 && rate <= mostRequests) {
		return Requests{}, fmt.Errorf("%v requests per second: want more than 0, and at most %v", rate, mostRequests)
	}
	r := Requests{SLA: sla, Rate: rate, Old: old, New: next}
	for _, s := range []*Serving{&r.Old, &r.New} {
		if s.Rate > 0 {
			s.Servers = int(math.Ceil(rate / s.Rate))
		}
		if s.Beyond > 0 {
			s.AtLeast = int(math.Ceil(rate / s.Beyond))
		}
	}
	if r.Old.Servers > 0 && r.New.Servers > 0 {
		saved := r.Old.Servers - r.New.Servers
		r.Saved = &saved
	}
	return r, nil
}

// WriteRequests writes all as text.
func WriteRequests(w io.Writer, all []Requests) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-8s %s\n", name, fmt.Sprintf(format, args...))
	}
	for i, r := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		line("within", "%s, %s requests per second", r.SLA, number(r.Rate))
		for _, x := range []struct {
			name string
			s    Serving
		}{{"old", r.Old}, {"new", r.New}} {
			line(x.name, "%s: %s", x.s.Name, x.s.text())
			line("", "from %s", x.s.Source)
		}
		if r.Saved != nil {
			line("saved", "%d servers: %d become %d", *r.Saved, r.Old.Servers, r.New.Servers)
		}
	}
	b.WriteString("\nAssumed, not measured:\n" +
		"  the requests can be divided among any number of servers; spares are not included\n" +
		"  every server, its clients and its network are like the measured ones\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Serving) text() string {
	if s.Rate == 0 {
		return "within it at no rate that was measured"
	}
	text := fmt.Sprintf("%s/s each", number(s.Rate))
	if s.Beyond > 0 {
		text += fmt.Sprintf(", not %s/s", number(s.Beyond))
	}
	text += fmt.Sprintf(": %d servers", s.Servers)
	if s.AtLeast > 0 && s.AtLeast < s.Servers {
		text += fmt.Sprintf(", at least %d", s.AtLeast)
	}
	return text
}

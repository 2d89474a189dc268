// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// barWidth is the length of the longest bar in characters.
const barWidth = 30

// Write writes the report for people: a table and a picture for each service, the culprits and the
// verdict. A bar is as long as the P99, in the scale of its service; its part of "=" is the P50.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	from := "all devices"
	if r.Device != "" {
		from = r.Device
	}
	fmt.Fprintf(&b, "Waits of %s, %s, %s.\n", from, r.Duration.Round(100*time.Millisecond), r.RateText())
	fmt.Fprintln(&b, r.CostText())
	for _, x := range r.Services {
		x.write(&b, r.Followed)
	}
	if r.Lost > 0 {
		fmt.Fprintf(&b, "\n%d requests or samples are lost: the programs had no room for them.\n", r.Lost)
	}
	for i, n := range r.Notes {
		if i == 0 {
			fmt.Fprintln(&b)
		}
		fmt.Fprintf(&b, "Note: %s.\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// RateText says how many requests were followed.
func (r Report) RateText() string {
	if r.SampleRate >= 1 {
		return "every request followed"
	}
	return fmt.Sprintf("requests followed in %s %% of the time", three(r.SampleRate*100))
}

// CostText says what the measurement cost, as a sentence.
func (r Report) CostText() string {
	switch {
	case r.Cost.Unknown != "":
		return "Its own cost is not known: " + r.Cost.Unknown + "."
	case r.Cost.Share == 0:
		return fmt.Sprintf("Its own cost: %s of processor time.", Duration(int64(r.Cost.CPU)))
	}
	return fmt.Sprintf("Its own cost: %s of processor time, %s %% of the services'.", Duration(int64(r.Cost.CPU)),
		three(r.Cost.Share*100))
}

// write writes a service. followed is the time in which its requests were counted.
func (x *ServiceReport) write(b *strings.Builder, followed time.Duration) {
	var ports []string
	for _, p := range x.Ports {
		ports = append(ports, fmt.Sprint(p))
	}
	fmt.Fprintf(b, "\n%s", x.Name)
	if x.Lane != "" {
		fmt.Fprintf(b, ", lane %s", x.Lane)
	}
	fmt.Fprintf(b, ", %s %s: %d requests, %s/s\n", x.Protocol, strings.Join(ports, ","), x.Requests,
		three(float64(x.Requests)/max(followed.Seconds(), 1e-9)))
	if x.Requests == 0 {
		return
	}
	var longest int64
	for _, w := range x.Waits {
		longest = max(longest, w.P99)
	}
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tP50\tP90\tP99\tP99.9\t")
	for _, w := range x.Waits {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t\n", w.Stage, Duration(w.P50), Duration(w.P90), Duration(w.P99),
			Duration(w.P999))
	}
	tw.Flush()
	for i, line := range strings.Split(strings.TrimRight(table.String(), "\n"), "\n") {
		b.WriteString(strings.TrimRight("  "+line+"  "+x.bar(i-1, longest), " ") + "\n")
	}
	if x.Stamped > 0 {
		fmt.Fprintf(b, "  card-to-stack begins at the card's timestamp for %s %% of the requests\n",
			three(float64(x.Stamped)/float64(x.Requests)*100))
	}
	for _, w := range x.Waits {
		for i, c := range w.Culprits {
			if i == 3 || c.Share < 0.1 {
				break
			}
			fmt.Fprintf(b, "  %s above %s: %.0f %% behind %s on %s\n", w.Stage, Duration(c.Above), c.Share*100, c.What,
				c.Where)
		}
	}
	for _, f := range []struct {
		n    uint64
		what string
	}{{x.Retransmits, "segments retransmitted"}, {x.Drops, "packets dropped"},
		{x.Pipelined, "arrivals before the previous answer: they count as one with it"},
		{x.Unpaired, "requests without an answer"},
		{x.unfinished(), "requests are not in this table: their answer was not seen"}} {
		if f.n > 0 {
			fmt.Fprintf(b, "  %d %s\n", f.n, f.what)
		}
	}
	for _, v := range x.Verdict {
		fmt.Fprintf(b, "  %s\n", v)
	}
}

// unfinished returns Unfinished if it can change P99.9, else 0: some requests are always under way.
func (x *ServiceReport) unfinished() uint64 {
	if x.Unfinished*1000 < x.Requests {
		return 0
	}
	return x.Unfinished
}

// bar draws a wait.
func (x *ServiceReport) bar(i int, longest int64) string {
	if i < 0 || longest == 0 {
		return ""
	}
	length := func(v int64) int { return int((v*barWidth + longest/2) / longest) }
	half, all := length(x.Waits[i].P50), length(x.Waits[i].P99)
	return strings.Repeat("=", half) + strings.Repeat("-", max(all-half, 0))
}

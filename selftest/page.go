// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

//go:embed selftest.html
var pageText string

// A pageView is what the template of the page gets.
type pageView struct {
	*Record
	Title          string
	CSS            template.CSS
	Headline, Lead []string
}

// WritePage writes the record as one HTML file that needs no other file.
func WritePage(w io.Writer, r *Record) error {
	t, err := page.Head()
	if err == nil {
		t, err = t.New("selftest.html").Funcs(template.FuncMap{
			"estimate": EstimateText, "ratio": RatioText, "ns": duration, "class": outcomeClass, "told": told,
			"queues": queues,
			"ranges": device.FormatCPUList, "percentileName": result.PercentileText,
			"bitrate": func(n int64) string { return result.BitsText(float64(n)) },
		}).Parse(pageText)
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	v := pageView{Record: r, Title: "Selftest: " + r.Card(), CSS: page.CSS(), Headline: []string{r.Summary() + "."}}
	restored := r.Restored()
	v.Lead = append(v.Lead, strings.ToUpper(restored[:1])+restored[1:],
		fmt.Sprintf("%s, %s, niclane %s, %s", r.System.CPUModel, count(r.System.CPUs, "processor"), r.Niclane,
			r.Started.Format("2006-01-02")))
	return t.ExecuteTemplate(w, "selftest.html", v)
}

// outcomeClass returns the CSS class for an outcome.
func outcomeClass(o Outcome) string {
	switch o {
	case OK:
		return "met"
	case Failed:
		return "missed"
	case Unproven:
		return "noisy"
	}
	return "dim"
}

// told returns the findings that the page shows: those about traffic, and those that are not ok.
func told(fs []verify.Finding) (out []string) {
	for _, f := range fs {
		if f.Severity == verify.OK && f.Part == "" {
			continue
		}
		what := strings.TrimSpace(string(f.Part) + " " + f.Meaning)
		out = append(out, fmt.Sprintf("%s: %s", f.Severity, what))
	}
	return out
}

// A queueRow is a row of a case's table: one queue.
type queueRow struct {
	Queue                      int
	Ours                       bool // a queue of the lane
	ReceivedLane, ReceivedElse uint64
	SentLane, SentElse         uint64
}

// queues returns the queues of a case that carried packets or belong to the lane.
func queues(c Case) (out []queueRow) {
	rows := map[int]*queueRow{}
	row := func(q int) *queueRow {
		if rows[q] == nil {
			rows[q] = &queueRow{Queue: q}
		}
		return rows[q]
	}
	for _, q := range c.Queues {
		row(q).Ours = true
	}
	for _, x := range c.Received {
		if x.Lane == LaneName {
			row(x.Queue).ReceivedLane += x.Packets
		} else {
			row(x.Queue).ReceivedElse += x.Packets
		}
	}
	for _, x := range c.Sent {
		if x.Lane == LaneName {
			row(x.Queue).SentLane += x.Packets
		} else {
			row(x.Queue).SentElse += x.Packets
		}
	}
	for _, r := range rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b queueRow) int { return a.Queue - b.Queue })
	return out
}

// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/niclane/niclane/live/waits"
)

// A waitsView is what the template of the waits' page gets.
type waitsView struct {
	waits.Report
	Title, Niclane string
	CSS            template.CSS
	Headline, Lead []string
}

// WriteWaits writes the waits of live requests as one HTML file that needs no other file. It has a
// picture and a table for each service.
func WriteWaits(w io.Writer, r waits.Report) error {
	t, err := Head()
	if err == nil {
		t, err = t.New("waits.html").Funcs(template.FuncMap{"ns": waits.Duration, "bars": waitBars,
			"percent": func(share float64) string { return fmt.Sprintf("%.0f", share*100) },
		}).Parse(asset("waits.html"))
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	v := waitsView{Report: r, Title: "Waits of live requests", CSS: CSS()}
	if r.Device != "" {
		v.Title += " on " + r.Device
	}
	v.Headline = []string{fmt.Sprintf("%s on %s, %s.", r.Duration.Round(100*time.Millisecond),
		r.At.Format("2006-01-02 15:04"), r.RateText()), r.CostText()}
	return t.ExecuteTemplate(w, "waits.html", v)
}

// waitBars draws a service's waits: for each stage the P50, the P90 and the P99 as bars over each
// other, and a line to the P99.9. All have one scale, which ends at the longest P99.
func waitBars(x waits.ServiceReport) template.HTML {
	const width, left, row, bar = 720, 130, 26, 14
	longest := int64(1)
	for _, w := range x.Waits {
		longest = max(longest, w.P99)
	}
	at := func(ns int64) float64 { return float64(min(ns, longest)) / float64(longest) * (width - left - 80) }
	s := fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="waits of %s">`, width, row*len(x.Waits),
		template.HTMLEscapeString(x.Name))
	for i, w := range x.Waits {
		y := i * row
		s += fmt.Sprintf(`<text x="%d" y="%d" text-anchor="end" fill="var(--ink)" font-size="13">%s</text>`, left-8,
			y+bar+2, template.HTMLEscapeString(w.Stage))
		for _, b := range []struct {
			ns      int64
			opacity float64
		}{{w.P99, 0.25}, {w.P90, 0.5}, {w.P50, 1}} {
			s += fmt.Sprintf(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="var(--blue)" fill-opacity="%g"/>`,
				left, y+4, at(b.ns), bar, b.opacity)
		}
		s += fmt.Sprintf(`<text x="%.1f" y="%d" fill="var(--dim)" font-size="12">%s</text>`, left+at(w.P99)+6, y+bar+2,
			waits.Duration(w.P99))
	}
	return template.HTML(s + "</svg>")
}

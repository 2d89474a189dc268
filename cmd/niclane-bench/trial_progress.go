// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/live/trial"
)

// A trialProgress shows what a trial does: on a terminal in one line that changes, elsewhere in a line
// for each round.
type trialProgress struct {
	out      io.Writer
	terminal bool
	estimate string // so far
	rounds   int
	shown    bool // a line on the terminal has no end yet
}

func (t *trialRun) progress() *trialProgress {
	return &trialProgress{out: t.Stderr, terminal: cli.IsTerminal(t.Stderr)}
}

func (p *trialProgress) show(now trial.Progress) {
	rounds := 0
	if len(now.Result.Points) > 0 {
		rounds = now.Result.Points[0].Rounds
	}
	news := rounds > p.rounds
	if news {
		p.rounds = rounds
		p.estimate = estimate(now.Result)
	}
	left := now.Left.Round(time.Second)
	switch {
	case p.terminal:
		what := "measuring"
		if now.Settling {
			what = "switching to"
		}
		fmt.Fprintf(p.out, "\r\033[K%.*s", 150, fmt.Sprintf("window %d of %d, %s %s, %v left%s", now.Window,
			now.Windows, what, now.Variant, left, p.estimate))
		p.shown = true
	case news:
		fmt.Fprintf(p.out, "window %d of %d, %v left%s\n", now.Window, now.Windows, left, p.estimate)
	}
}

// end ends the line on the terminal.
func (p *trialProgress) end() {
	if p.shown {
		fmt.Fprintln(p.out)
	}
}

// estimate returns the ratio of each variant so far, for the first service.
func estimate(r *result.Result) string {
	s := result.Summarize(r)
	var parts []string
	for _, v := range s.Points[0].Variants {
		for _, c := range v.Percentiles {
			if c.P == 99 && c.Ratio != nil {
				parts = append(parts, fmt.Sprintf("%s %s", v.Name, c.RatioText()))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; P99 of " + s.Points[0].Name + ": " + strings.Join(parts, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/internal/testing/must"
)

// smallResult returns a result with two variants in two repeats; the second variant is twice as
// slow.
func smallResult(kernel string) *result.Result {
	r := &result.Result{
		Schema: result.Schema, Title: "a small run", Niclane: "v0", Environment: result.Environment{Kernel: kernel},
		Experiment: &experiment.Experiment{Base: "idle", Load: experiment.Load{Mode: experiment.Open}},
		Variants:   []result.Variant{{Name: "idle"}, {Name: "lane"}},
		Points:     []result.Point{{Mode: load.Open, Rate: 1000, Connections: 4, Rounds: 2}},
	}
	for repeat := range 2 {
		for v, name := range []string{"idle", "lane"} {
			rec := stats.NewRecorder(100e6, 10)
			for i := range 1000 {
				rec.Advance(i / 100)
				rec.Record(int64((v + 1) * (50_000 + i*7%1000)))
			}
			s := rec.Series()
			r.Windows = append(r.Windows, result.Window{Purpose: result.Repeat, Variant: name, Repeat: repeat,
				Rate: 1000, Load: load.Result{
					Mode: load.Open, Duration: 1e9, Intended: 1000, Sent: 1000, Completed: 1000, Latency: s.Histogram(),
					Series: s}})
		}
	}
	return r
}

func TestReport(t *testing.T) {
	t.Chdir(t.TempDir())
	keep := func(name string, r *result.Result) {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, result.WriteFile(name, r))
	}
	keep("run/result.json", smallResult("6.18"))
	keep("b.JSON", smallResult("6.19"))
	other := smallResult("6.18")
	other.Experiment.Workload.ValueBytes = 7
	keep("other.json", other)
	partial := smallResult("6.18")
	partial.Partial, partial.Windows = &result.Partial{Phase: "repeats", Reason: "interrupted"}, partial.Windows[:1]
	keep("partial.json", partial)
	whole, err := os.ReadFile("b.JSON")
	must.Do(t, err)
	for name, text := range map[string][]byte{"cut.json": whole[:len(whole)/2],
		"newer.json": bytes.Replace(whole, []byte(result.Schema), []byte("niclane.result/99"), 1)} {
		must.Do(t, os.WriteFile(name, text, 0o644))
	}
	for _, c := range []struct {
		args string
		code int
		want []string // texts that standard output must contain, or standard error if code is not 0
		file string   // if not "", this file must contain the texts, instead of standard output
	}{
		{"run/result.json", 0, []string{"1000/s, 4 connections, repeats: 2", "P50"}, ""},
		{"run", 0, []string{"1000/s, 4 connections, repeats: 2"}, ""}, // a directory
		{"run --format csv", 0, []string{"point,rate,"}, ""},
		{"run --format markdown", 0, []string{"# a small run"}, ""},
		{"run --format gobench", 0, []string{"BenchmarkASmallRun/rate=1000/connections=4/variant=lane 1000"}, ""},
		{"run --format html", 0, []string{"<!doctype html>", "a small run"}, ""},
		{"run --format svg", 0, []string{"<svg xmlns", "a small run"}, ""},
		{"run --out picture.svg", 0, []string{"<svg xmlns"}, "picture.svg"},
		{"run --json", 0, []string{`"percentiles": [`}, ""},
		{"run --out run", 0, []string{"<!doctype html>"}, "run/report.html"},
		{"run --out new/dir/", 0, []string{"<!doctype html>"}, "new/dir/report.html"},
		{"run --out page.html", 0, []string{"<!doctype html>"}, "page.html"},
		{"run --out x.csv", 0, []string{"point,rate,"}, "x.csv"},
		{"run --out run --format text", 0, []string{"a small run"}, "run/report.txt"},
		{"run --fan-out", 0, []string{"with a probability of 0.99", "100 µs", "at least"}, ""},
		{"run --fan-out --probability 0.5 --format csv", 0, []string{"lane,0.5,"}, ""},
		{"run --fan-out --json", 0, []string{`"servers"`}, ""},
		{"run b.JSON", 0, []string{"kernel: 6.18 → 6.19", "experiment: the same", "B to A", "×1.00", "~"}, ""},
		{"run b.JSON --format csv", 0, []string{"point,variant,measure,"}, ""},
		{"run b.JSON --json", 0, []string{`"environment": [`}, ""},
		{"partial.json", 0, []string{"PARTIAL: ended in phase repeats: interrupted"}, ""},
		{"partial.json run --format markdown", 0, []string{"PARTIAL: ended in phase repeats: interrupted"}, ""},
		{"run other.json", 1, []string{"not the same experiment: workload.valueBytes: - → 7"}, ""},
		{"cut.json", 1, []string{"cut.json: the file ends in the middle, after "}, ""},
		{"newer.json", 1, []string{`newer.json: schema "niclane.result/99" of a newer niclane`}, ""},
		{"none.json", 1, []string{"none.json: no such file"}, ""},
		{"", 2, []string{"report: 0 arguments, want a result, or two to compare"}, ""},
		{"run b.JSON run", 2, []string{"3 arguments"}, ""},
		{"run --format pdf", 2, []string{"--format pdf: want html, svg, text, csv, markdown, gobench"}, ""},
		{"run b.JSON --format html", 0, []string{"<!doctype html>", "A: a small run", "6.19", `id="ratios"`}, ""},
		{"run b.JSON --out pages/", 0, []string{"B to A"}, "pages/report.html"},
		{"run b.JSON --format gobench", 2, []string{"--format gobench: want html, text, csv, markdown"}, ""},
		{"run other.json --format html --out none.html", 1, []string{"niclane: not the same experiment: " +
			"workload.valueBytes: - → 7"}, ""},
		{"--servers one=run two=b.JSON#lane paper:", 0, []string{"one              -         a small run", "two ",
			"paper: 2x6780E", "97.3 %", "the device's bytes were not counted"}, ""},
		{"--servers paper: --json", 0, []string{`"gbitPerSecondPerWatt": {`}, ""},
		{"--servers paper: --out servers.html", 0, []string{"<!doctype html>", "VoD, two sockets"}, "servers.html"},
		{"--servers paper: --format csv", 0, []string{"server,sockets,work",
			",2,The paper's live,48 for each client,,1553.62,1600,"}, ""},
		{"--servers paper: --format svg", 2, []string{"--servers --format svg: want html, text, csv, markdown"}, ""},
		{"--servers paper: --fan-out", 2, []string{"want it alone"}, ""},
		{"--servers run#gone", 1, []string{`run: no variant "gone", want one of idle, lane`}, ""},
		{"--servers run run", 1, []string{"is there already"}, ""},
		{"--servers none", 1, []string{"none: no such file"}, ""},
		{"--servers", 2, []string{"report: 0 arguments"}, ""},
		{"run --fan-out --format gobench", 2, []string{"want text, csv, markdown"}, ""},
		{"run b.JSON --fan-out", 2, []string{"--fan-out with two results, want one"}, ""},
		{"run --fan-out --probability 1", 2, []string{"--probability 1: want more than 0 and less than 1"}, ""},
	} {
		var out, errs bytes.Buffer
		code := run(append([]string{"report"}, strings.Fields(c.args)...), nil, &out, &errs)
		got := out.String()
		if c.file != "" {
			text, err := os.ReadFile(c.file)
			if err != nil {
				t.Error(err)
			}
			if out.Len() > 0 {
				t.Errorf("report %s also prints %s", c.args, out.String())
			}
			got = string(text)
		}
		if c.code != 0 {
			got = errs.String()
		}
		if code != c.code {
			t.Errorf("report %s: exit code %d, want %d: %s", c.args, code, c.code, errs.String())
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("report %s: want %q in\n%.600s", c.args, w, got)
			}
		}
		if strings.Contains(c.args, "--json") {
			if err := conforms(t, append([]string{"report"}, strings.Fields(c.args)...), out.Bytes()); err != nil {
				t.Errorf("report %s: %v", c.args, err)
			}
		}
		if partial := strings.Contains(c.args, "partial.json"); partial != strings.Contains(errs.String(),
			"partial.json: partial: the run ended") {
			t.Errorf("report %s: standard error has %q", c.args, errs.String())
		}
	}
	if left, err := filepath.Glob("*.partial"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestReportKeepsTheEarlierPage: if report cannot write the page, the old page stays.
func TestReportKeepsTheEarlierPage(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Do(t, result.WriteFile("result.json", smallResult("6.18")))
	must.Do(t, os.WriteFile("report.html", []byte("earlier"), 0o644))
	must.Do(t, os.Symlink("/dev/full", "report.html.partial"))
	var out, errs bytes.Buffer
	if code := run([]string{"report", "result.json", "--out", "report.html"}, nil, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "no space left on device") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if text, err := os.ReadFile("report.html"); err != nil || string(text) != "earlier" {
		t.Errorf("the earlier page is %q, %v", text, err)
	}
}

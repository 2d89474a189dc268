// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/stats"
)

var update = flag.Bool("update", false, "write testdata anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTable(&b, synthetic()); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())
}

func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, synthetic()); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("NICLANE_REPORT_DIR"); dir != "" { // to look at it
		if err := os.WriteFile(filepath.Join(dir, "report.html"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A page that loads anything is not self-contained.
func TestHTMLIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, synthetic()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	library, err := assets.ReadFile("assets/echarts.common.min.js")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page, string(library)) {
		t.Fatal("the chart library is not in the page as it is")
	}
	if strings.Contains(string(library), "</script") || strings.Contains(string(library), "<!--") {
		t.Error("the chart library would end its script element")
	}
	own := strings.Replace(page, string(library), "", 1)
	for _, bad := range []string{"http:", "https:", "src=", "<link", "@import", "url(", "//cdn", "fetch(", "XMLHttpRequest", "import("} {
		if i := strings.Index(own, bad); i >= 0 {
			t.Errorf("the page contains %q: ...%s...", bad, own[max(0, i-40):min(len(own), i+40)])
		}
	}
	if strings.Count(page, "<script") != strings.Count(page, "</script>") {
		t.Error("script elements do not match")
	}
	if strings.Contains(own, "ZgotmplZ") {
		t.Error("the template refused a value")
	}
}

// Whatever stands in the texts must stay text.
func TestHTMLEscapes(t *testing.T) {
	r := synthetic()
	const evil = `</script><script>alert(1)</script><b a="'>`
	r.Title, r.Environment.Config, r.Warnings = evil, evil, []string{evil}
	r.Variants = append(r.Variants, Variant{Name: evil, Title: evil, Differences: []string{evil}})
	for i := range r.Runs {
		r.Runs[i].CPU[0].What = evil
		r.Runs[i].Hops[0].Name = evil
	}
	var b bytes.Buffer
	if err := WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "alert(1)</script>") || strings.Contains(b.String(), `<b a=`) {
		t.Error("text became markup")
	}
}

// Every number in a rendering must be in result.json, so that reading it gives
// the same renderings.
func TestJSONRoundTrip(t *testing.T) {
	r := synthetic()
	var j, table, page bytes.Buffer
	if err := WriteJSON(&j, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&table, r); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page, r); err != nil {
		t.Fatal(err)
	}
	back, err := ReadJSON(bytes.NewReader(j.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var j2, table2, page2 bytes.Buffer
	if err := WriteJSON(&j2, back); err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(&table2, back); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&page2, back); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]*bytes.Buffer{"result.json": {&j, &j2}, "table": {&table, &table2}, "page": {&page, &page2}} {
		if !bytes.Equal(pair[0].Bytes(), pair[1].Bytes()) {
			t.Errorf("%s differs after reading result.json", name)
		}
	}
	if j.Len() > 4<<20 {
		t.Errorf("result.json has %d bytes", j.Len())
	}
}

func TestSummarizeRefuses(t *testing.T) {
	for name, spoil := range map[string]func(r *Result){
		"schema":          func(r *Result) { r.Schema = "niclane.result/0" },
		"unknown variant": func(r *Result) { r.Runs[3].Variant = "turbo" },
		"repeat twice":    func(r *Result) { r.Runs[4].Repeat = 0 },
		"variant twice":   func(r *Result) { r.Variants[1].Name = Idle },
		"no histogram":    func(r *Result) { r.Runs[2].Load.Latency = nil },
	} {
		r := synthetic()
		spoil(r)
		if err := Summarize(r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, in := range map[string]string{"empty": "", "not json": "x", "no schema": "{}"} {
		if _, err := ReadJSON(strings.NewReader(in)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A run cut short still gives a report that says what is missing.
func TestThinResults(t *testing.T) {
	for name, thin := range map[string]func(r *Result){
		"no runs":      func(r *Result) { r.Runs = nil },
		"one repeat":   func(r *Result) { r.Runs = r.Runs[:3] },
		"two repeats":  func(r *Result) { r.Runs = r.Runs[:6] },
		"nine repeats": func(r *Result) { r.Runs = r.Runs[:27] },
		"idle only":    func(r *Result) { r.Runs, r.Variants = r.Runs[:1], r.Variants[:1] },
		"nothing else": func(r *Result) { *r = Result{Schema: Schema, Variants: r.Variants} },
		"few samples": func(r *Result) {
			for i := range r.Runs {
				h := stats.NewHistogram()
				for j := range int64(900) {
					h.Record(j)
				}
				r.Runs[i].Load.Latency = h
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := synthetic()
			thin(r)
			var table, page, j bytes.Buffer
			if err := WriteTable(&table, r); err != nil {
				t.Error(err)
			}
			if err := WriteHTML(&page, r); err != nil {
				t.Error(err)
			}
			if err := WriteJSON(&j, r); err != nil {
				t.Error(err)
			}
			if name == "few samples" && !strings.Contains(table.String(), "P99 needs 1000 samples, have 900: 100 missing") {
				t.Errorf("the table does not say how many samples are missing:\n%s", table.String())
			}
			if strings.Contains(table.String(), "P99 at most 1.50: MET") {
				t.Errorf("the latency goal is met:\n%s", table.String())
			}
			if dir := os.Getenv("NICLANE_REPORT_DIR"); dir != "" {
				name := "thin-" + strings.ReplaceAll(name, " ", "-") + ".html"
				if err := os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Slow changes of the host must cancel: each repeat is compared with its own
// neighbour.
func TestRatioPairsNeighbours(t *testing.T) {
	r := &Result{Schema: Schema, Variants: []Variant{{Name: Idle}, {Name: Lane}}, Setup: Setup{Goal: 1.5}}
	for i := range 8 {
		host := int64(1000 * (i + 1)) // the host gets slower and slower
		for v, f := range map[string]int64{Idle: 10, Lane: 12} {
			h := stats.NewHistogram()
			for range 1000 {
				h.Record(host * f)
			}
			r.Runs = append(r.Runs, Run{Variant: v, Repeat: i, Load: load.Result{Latency: h}})
		}
	}
	if err := Summarize(r); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Summary.Ratios {
		if row.Ratio == nil || row.Ratio.N != 8 || row.Ratio.Low < 1.19 || row.Ratio.High > 1.21 {
			t.Errorf("P%v: %+v (%s), want 1.2 by 8 pairs whatever the host did", row.P, row.Ratio, row.Missing)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{duration(0), "0 ns"}, {duration(999), "999 ns"}, {duration(999.6), "1.00 µs"}, {duration(84_249), "84.2 µs"},
		{duration(999_499), "999 µs"}, {duration(999_500), "1.00 ms"}, {duration(2e9), "2.00 s"}, {duration(1e12), "1000 s"},
		{bitrate(742e6), "742 Mbit/s"}, {size(1514), "1.51 kB"}, {size(0.25), "0.25 B"},
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"},
		{times(1.074), "1.07×"}, {times(98.44), "98.4×"}, {times(1240.2), "1,240×"}, {percentile(99.9), "P99.9"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestCPUShare(t *testing.T) {
	r := &Result{Schema: Schema, Variants: []Variant{{Name: Idle}}}
	for i, use := range []CPUUse{{What: "server", Time: 1e9}, {What: "server", Time: 3e9, Over: 6e9}} {
		r.Runs = append(r.Runs, Run{Variant: Idle, Repeat: i, CPU: []CPUUse{use},
			Load: load.Result{Duration: 2e9, Latency: stats.NewHistogram()}})
	}
	if err := Summarize(r); err != nil {
		t.Fatal(err)
	}
	want := []CPURow{{"server", Idle, 0.5}} // 4 s of 2 s + 6 s
	if d := cmp.Diff(want, r.Summary.CPU); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

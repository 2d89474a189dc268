// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/bench/stats/fanout"
	"github.com/niclane/niclane/bench/stats/statstest"
)

func render(t *testing.T, r *result.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r, Options{}); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.String())
	return b.String()
}

var tag = regexp.MustCompile(`<(/?)([a-zA-Z0-9]+)((?:[^<>"]|"[^"]*")*?)(/?)>|<!doctype html>`)

// wellFormed checks that elements are closed in the right order, and that no text looks like the
// start of an element.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	var open []string
	for _, m := range tag.FindAllStringSubmatch(page, -1) {
		switch name := m[2]; {
		case name == "" || m[4] == "/" || name == "meta" || name == "br":
		case m[1] == "":
			open = append(open, name)
		case len(open) == 0 || open[len(open)-1] != name:
			t.Fatalf("</%s> ends nothing; open are %v", name, open)
		default:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("not closed: %v", open)
	}
	if rest := tag.ReplaceAllString(page, ""); strings.ContainsAny(rest, "<") {
		i := strings.IndexByte(rest, '<')
		t.Errorf("a < that opens nothing: ...%s...", rest[max(0, i-40):min(len(rest), i+40)])
	}
}

// parts are the parts of the page. Each has a text that is on the page only if the part is.
var parts = map[string]string{
	"lines": "<h2>Latency over load</h2>", "limit": `class="limit"`, "achieved": `id="achieved"`,
	"slas": "Where the SLA is crossed", "ring": `class="ring"`, "normalised": `id="normalised"`,
	"jitter":   "<h3>Jitter</h3>",
	"short":    `class="minus"`,
	"searches": "<h2>Searches", "time line": `id="timeline"`, "stalls": `class="stall-bar"`,
	"noise in time": `class="noise"`, "noise lost": `class="trouble"`,
	"ratios": `id="ratios"`, "goal": `class="goal-line"`, "distribution": `id="distribution"`, "floor": `class="floor"`,
	"bytes": `id="bytes"`, "exceed": `id="exceed"`, "bucketed": "bucketed mean", "noise": "noise to the SUT",
	"hops": "switch → SUT", "empty hops": "an idle queue",
	"traffic": "received by the SUT", "watts": "<th>Gbit/s per W</th>", "fan-out": `id="fan-out"`,
	"machine": "What the machine did", "sweep": `class="heat"`,
	"host": "own noise</h2>", "claims": `class="claims"`, "doubts": "Reasons for doubt", "lanes": "Lanes file",
	"plan": "Plan: the steps", "differences": "a queue of its own",
	"environment": "net.core.somaxconn", "repeat": "title: a made-up run",
}

func TestPageHasWhatTheResultHas(t *testing.T) {
	page := render(t, everything())
	for name, sign := range parts {
		errtest.Has(t, name, page, sign)
	}
}

// TestPageHasNothingElse checks that the page leaves out the parts that the result lacks, and has
// no empty figure.
func TestPageHasNothingElse(t *testing.T) {
	windows := func(f func(w *result.Window)) func(*result.Result) {
		return func(r *result.Result) {
			for i := range r.Windows {
				f(&r.Windows[i])
			}
		}
	}
	for name, c := range map[string]struct {
		strip func(*result.Result)
		gone  []string
	}{
		"one load point": {func(r *result.Result) {
			r.Points, r.Searches = r.Points[:1], nil
			r.Windows = slices.DeleteFunc(r.Windows, func(w result.Window) bool { return w.Point > 0 })
		}, []string{"lines", "limit", "short", "ring"}},
		"closed loop": {func(r *result.Result) {
			for i := range r.Points {
				r.Points[i].Mode, r.Points[i].Rate, r.Points[i].Connections = load.Closed, 0, 8*(i+1)
			}
		}, []string{"achieved", "short"}},
		"no SLA": {func(r *result.Result) { r.Experiment.SLA, r.Searches = nil, nil },
			[]string{"limit", "searches", "slas", "ring"}},
		"no stalls": {windows(func(w *result.Window) { w.Load.Stalls = nil }), []string{"stalls"}},
		"no noise": {windows(func(w *result.Window) { w.Noise = nil }),
			[]string{"noise", "noise in time", "noise lost"}},
		"no series": {windows(func(w *result.Window) { w.Load.Series = nil }), []string{"time line", "stalls"}},
		"no bytes": {windows(func(w *result.Window) { w.Load.FirstByte, w.Load.FirstByteSeries = nil, nil }),
			[]string{"bytes"}},
		"no hops":  {windows(func(w *result.Window) { w.Hops = nil }), []string{"hops", "empty hops"}},
		"no power": {windows(func(w *result.Window) { w.Power = nil }), []string{"watts"}},
		"no machine": {windows(func(w *result.Window) { w.Machine, w.Load.Payload = nil, 0 }),
			[]string{"machine", "traffic", "watts"}},
		"no warning": {func(r *result.Result) {
			windows(func(w *result.Window) { w.Load.Warnings = nil })(r)
			// six repeats give a doubt about their number; with five another test applies
			r.Windows = slices.DeleteFunc(r.Windows, func(w result.Window) bool { return w.Repeat > 4 })
		}, []string{"doubts"}},
		"no goals": {func(r *result.Result) { r.Experiment.Goals = nil }, []string{"claims", "goal"}},
		"no sweep": {func(r *result.Result) {
			r.Windows = slices.DeleteFunc(r.Windows, func(w result.Window) bool { return w.Purpose == result.Sweeping })
		}, []string{"sweep"}},
		"one variant": {func(r *result.Result) {
			r.Variants, r.Experiment.Goals = r.Variants[:1], nil
			r.Windows = slices.DeleteFunc(r.Windows, func(w result.Window) bool { return w.Variant != "idle" })
		}, []string{"ratios", "goal", "lanes", "plan", "normalised"}},
		"no host noise": {func(r *result.Result) { r.HostNoise = nil }, []string{"host", "floor"}},
		"few samples": {windows(func(w *result.Window) {
			h := statstest.Equal(1, 1000)
			w.Load.Latency, w.Load.Series = h, stats.OneWindow(h)
		}), []string{"distribution", "exceed", "fan-out", "time line", "jitter", "ring"}},
		"nothing": {func(r *result.Result) { r.Windows, r.Points, r.Searches = nil, nil, nil },
			[]string{"lines", "achieved", "ratios", "distribution", "exceed", "fan-out", "time line", "traffic",
				"machine", "jitter", "normalised", "ring", "slas"}},
		"partial": {func(r *result.Result) {
			r.Partial = &result.Partial{Phase: "repeats", Reason: "interrupted"}
			r.Windows = r.Windows[:2]
		}, []string{"ratios", "normalised"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := everything()
			c.strip(r)
			page := render(t, r)
			for part, sign := range parts {
				if slices.Contains(c.gone, part) && strings.Contains(page, sign) {
					t.Errorf("%s: %q is there", part, sign)
				}
			}
			errtest.Lacks(t, "a number that is none", page, "NaN", "Inf")
			if r.Partial != nil {
				errtest.Has(t, "partial", page, "ended in phase repeats: interrupted")
			}
		})
	}
}

// TestPageIsSelfContained checks that the page loads nothing and runs no script.
func TestPageIsSelfContained(t *testing.T) {
	page := render(t, everything())
	for _, bad := range []string{"http:", "https:", "src=", "<link", "<script", "@import", "url(", "href=",
		"javascript:", "ZgotmplZ"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page contains %q: ...%s...", bad, page[max(0, i-40):min(len(page), i+40)])
		}
	}
}

// TestPageEscapes: text from the result must be escaped.
func TestPageEscapes(t *testing.T) {
	r := everything()
	const evil = `</style></svg><script>alert(1)</script><b a="'>`
	r.Title, r.Text, r.Warnings = evil, evil, []string{evil}
	r.Variants = append(r.Variants, result.Variant{Name: evil, Title: evil, Lanes: evil, Plan: evil,
		Differences: []string{evil}})
	r.Environment.Kernel, r.Partial = evil, &result.Partial{Phase: evil, Reason: evil}
	for i := range r.Windows {
		w := &r.Windows[i]
		if w.Variant == "lane" {
			w.Variant = evil
		}
		w.Hops[0].Name, w.Machine.Processes[0].Name, w.Load.Warnings = evil, evil, []string{evil}
		w.Power[0].Provenance.Covers = evil
	}
	page := render(t, r)
	errtest.Lacks(t, "text that became markup", page, "<script", `<b a=`)
}

// TestRefusedIsNotDrawn checks that a value that the sample cannot support is marked as refused. It
// must have no point, no interval and no line.
func TestRefusedIsNotDrawn(t *testing.T) {
	panel := linesPanel{title: "P99.9", xName: rateName, text: tickText,
		series: []lineSeries{{key: key{Name: "lane", Class: "blue"}, points: []linePoint{
			{x: 1000, value: 5e5, low: 4e5, high: 6e5}, {x: 2000, missing: "needs 77 more"},
			{x: 3000, value: 7e5, low: 6e5, high: 8e5}}}}}
	got := string(panel.draw())
	wellFormed(t, got)
	for sign, want := range map[string]int{`class="dot"`: 2, `class="cross"`: 2, `class="stroke"`: 0,
		`class="whisker"`: 6, "refused: needs 77 more": 1, ">refused<": 1} {
		if n := strings.Count(got, sign); n != want {
			t.Errorf("%d of %s, want %d in\n%s", n, sign, want, got)
		}
	}
	panel.series[0].points[1] = linePoint{x: 2000, value: 5e5, low: 4e5, high: 6e5}
	if n := strings.Count(string(panel.draw()), `class="stroke"`); n != 1 {
		t.Errorf("%d lines through three points, want 1", n)
	}
}

// TestUnknownIsNotDrawn checks that unknown values are left out of all other figures: of bars, of
// lines with bands, and of the time line.
func TestUnknownIsNotDrawn(t *testing.T) {
	bars := barChart{label: "bars", text: tickText, y: fromZero, groups: []barGroup{{name: "P99", bars: []bar{
		{value: 5e5, low: 4e5, high: 6e5, title: "idle"}, {}}}}}
	v := &view{Keys: []key{{Name: "lane", Class: "blue"}}}
	fan := result.FanOut{Variants: []result.FanOutVariant{{Name: "lane"}}}
	in := result.VariantInTime{Name: "lane", Duration: 7e9}
	for i := range int64(7) {
		fan.Times = append(fan.Times, (i+1)*1e5)
		a := fanout.Answer{Servers: 3 + i, Low: 2 + i, High: 5 + i}
		if i == 3 {
			a = fanout.Answer{Missing: "needs 77 more", Low: 2}
		} else { // no answers in the fourth second, too few for a median in the second one
			in.Latency = append(in.Latency, result.Instant{At: i * 1e9, Count: 9, Median: 2e5 - i%2*3e5, Slowest: 1e6})
		}
		fan.Variants[0].Answers = append(fan.Variants[0].Answers, a)
	}
	round := &result.TimeLine{Interval: 1e9, Variants: []result.VariantInTime{in}}
	for name, c := range map[string]struct {
		got  template.HTML
		want map[string]int
	}{
		"bars":    {bars.draw(wide), map[string]int{`class="bar"`: 1, "whisker": 1, "<title>": 1}},
		"fan-out": {v.drawFanOut(fan, wide), map[string]int{`="stroke bold"`: 2, `="band"`: 2, `="dot"`: 6}},
		"round": {v.drawTimeLine(round, wide),
			map[string]int{`="stroke"`: 2, `="thin"`: 0, "median": 4, "slowest": 6}},
	} {
		wellFormed(t, string(c.got))
		for sign, want := range c.want {
			if n := strings.Count(string(c.got), sign); n != want {
				t.Errorf("%s: %d of %s, want %d in\n%s", name, n, sign, want, c.got)
			}
		}
	}
}

func TestPictures(t *testing.T) {
	page := render(t, everything())
	for _, m := range regexp.MustCompile(`<svg [^>]*>`).FindAllString(page, -1) {
		if !regexp.MustCompile(`role="img" aria-label="[^"]{10,}"`).MatchString(m) {
			t.Errorf("a picture without a text in its place: %s", m)
		}
	}
	if n, m := strings.Count(page, "<figure "), strings.Count(page, "<figcaption>"); n != m || n == 0 {
		t.Errorf("%d figures and %d captions", n, m)
	}
	// Each coordinate must be in the picture, or close to its edge.
	for _, svg := range regexp.MustCompile(`(?s)<svg viewBox="0 0 (\d+)[^>]*>.*?</svg>`).FindAllStringSubmatch(page,
		-1) {
		var width float64
		fmt.Sscan(svg[1], &width)
		for _, m := range regexp.MustCompile(` (?:x|x1|x2|cx)="([-0-9.]+)"`).FindAllStringSubmatch(svg[0], -1) {
			var x float64
			if fmt.Sscan(m[1], &x); x < -1 || x > width+1 {
				t.Errorf("%s is out of a picture of %v", m[0], width)
			}
		}
	}
}

// TestTextsDoNotOverlap checks that the texts of each picture do not overlap.
func TestTextsDoNotOverlap(t *testing.T) {
	text := regexp.MustCompile(`<text class="([^"]*)" text-anchor="([a-z]+)" x="([-0-9.]+)" y="([-0-9.]+)">([^<]*)`)
	type box struct {
		left, right, y float64
		text           string
	}
	page := render(t, everything())
	for _, svg := range regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1) {
		var all []box
		for _, m := range text.FindAllStringSubmatch(svg, -1) {
			b := box{text: m[5]}
			fmt.Sscan(m[3], &b.left)
			fmt.Sscan(m[4], &b.y)
			w := 0.9 * widthOf(html.UnescapeString(m[5])) // 0.9, because widthOf estimates too much
			b.left -= map[string]float64{start: 0, middle: w / 2, end: w}[m[2]]
			b.right = b.left + w
			for _, o := range all {
				if b.left < o.right && o.left < b.right && max(b.y, o.y)-min(b.y, o.y) < 12 {
					t.Errorf("%q at %.0f, %.0f lies over %q at %.0f, %.0f", b.text, b.left, b.y, o.text, o.left, o.y)
				}
			}
			all = append(all, b)
		}
		if len(all) == 0 {
			t.Error("a picture without a word")
		}
	}
}

// TestNumbersComeFromTheResult checks that every number on the page comes from the result or from
// its summary.
func TestNumbersComeFromTheResult(t *testing.T) {
	r := everything()
	page := render(t, r)
	known := map[string]bool{}
	learn := func(text string) {
		for _, n := range numbers.FindAllString(text, -1) {
			known[n] = true
		}
	}
	// The page itself has numbers: "95 % intervals", "5 % rule".
	for _, own := range []string{"95 5", asset("page.html")} {
		learn(own)
	}
	fan, err := result.FanOuts(r, result.FanOutProbability)
	if err != nil {
		t.Fatal(err)
	}
	summary := result.Summarize(r)
	for _, v := range []any{r, summary, fan} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		leaves(tree, func(leaf any) {
			switch v := leaf.(type) {
			case string:
				learn(v)
				learn(grouped(v))
			case float64:
				for _, s := range []string{result.DurationText(v), tickText(v), result.BitsText(v), result.BytesText(v),
					number(v), number(v * 1e3), count(int64(v)),
					share(v), trimmed(share(v)), share(v / 1000), trimmed(share(v / 1000)), share(1 - v), times(v),
					fmt.Sprint(v)} {
					learn(s)
				}
			}
		})
	}
	for _, p := range summary.Points { // numbers in names such as "2000/s, 8 connections"
		learn(grouped(p.Name))
		for _, d := range p.Doubts {
			learn(grouped(d.Places(summary.Points)))
		}
	}
	for _, d := range summary.Doubts {
		learn(fmt.Sprint(d.Windows()))
		learn(grouped(d.Places(summary.Points)))
	}
	learn(r.Started.Format("2 January 2006, 15:04 MST"))
	// SVG is left out because axes have round numbers, and <pre> because it has the text of files.
	body := page[strings.Index(page, "<body>"):]
	body = regexp.MustCompile(`(?s)<svg .*?</svg>|<pre>.*?</pre>`).ReplaceAllString(body, " ")
	body = html.UnescapeString(tag.ReplaceAllString(body, " "))
	checked := 0
	for _, at := range numbers.FindAllStringIndex(body, -1) {
		n := body[at[0]:at[1]]
		if checked++; !known[n] {
			t.Errorf("%s is not in the result: ...%s...", n,
				strings.Join(strings.Fields(body[max(0, at[0]-60):min(len(body), at[1]+30)]), " "))
		}
	}
	if checked < 500 {
		t.Errorf("only %d numbers looked at", checked)
	}
}

var numbers = regexp.MustCompile(`[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?`)

func leaves(v any, yield func(any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			leaves(x, yield)
		}
	case []any:
		for _, x := range v {
			leaves(x, yield)
		}
	default:
		yield(v)
	}
}

// TestPageFromTheFile checks that a result gives the same page after it was written and read.
func TestPageFromTheFile(t *testing.T) {
	r := everything()
	page := render(t, r)
	var b bytes.Buffer
	if err := result.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	back, err := result.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if again := render(t, back); again != page {
		t.Error("the page of result.json is another one")
	}
}

func TestColours(t *testing.T) {
	r := everything()
	r.Variants = append(r.Variants, result.Variant{Name: "idle-lane", Lanes: "x"},
		result.Variant{Name: "ntuple", Lanes: "y"})
	r.Experiment.Variants = append(r.Experiment.Variants, r.Experiment.Variants[2])
	r.Experiment.Variants[3].Name = "ntuple"
	var got []string
	for _, k := range keys(r) {
		got = append(got, k.Name+" "+k.Class)
	}
	want := "idle grey, no-lane orange, lane blue, idle-lane teal, ntuple purple"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s, want %s", s, want)
	}
	for i := range 5 {
		r.Variants = append(r.Variants, result.Variant{Name: fmt.Sprint("part-", i), Lanes: "z"})
		r.Experiment.Variants = append(r.Experiment.Variants,
			experiment.Variant{Name: fmt.Sprint("part-", i), Noise: true})
	}
	seen := map[string]bool{}
	for _, k := range keys(r) {
		if seen[k.Class] {
			t.Errorf("two variants are %s", k.Class)
		}
		seen[k.Class] = true
	}
	r.Experiment.Noise = nil // without noise, no variant counts as quiet
	if k := keys(r)[0]; k.Class != "orange" {
		t.Errorf("the variant without lanes of an experiment without noise is %s", k.Class)
	}
}

func TestScales(t *testing.T) {
	for name, s := range map[string]scale{
		"linear": {0, 97, 10, 200, false}, "decades": {80e3, 2e9, 200, 10, true},
		"within a decade": {80e3, 400e3, 200, 10, true}, "many": {1, 1e12, 0, 100, true},
	} {
		ticks := s.ticks(6)
		if len(ticks) < 2 || len(ticks) > 7 || !slices.IsSorted(ticks) {
			t.Errorf("%s: ticks %v", name, ticks)
		}
		for _, v := range ticks {
			if v < s.low || v > s.high*1.001 {
				t.Errorf("%s: %v is outside", name, v)
			}
		}
		if s.at(s.low) != s.from || s.at(s.high) != s.to {
			t.Errorf("%s: ends at %v and %v", name, s.at(s.low), s.at(s.high))
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{tickText(250e3), "250 µs"}, {tickText(1.5e6), "1.5 ms"}, {tickText(2e9), "2 s"},
		{count(-1234567), "-1,234,567"}, {number(0.0625), "0.062"},
		{number(1234.5), "1,235"}, {number(0.0000033), "0.0000033"}, {times(0.004), "0.004"}, {times(16.64), "16.6"},
		{share(0.123456), "12.3 %"}, {share(1), "100 %"},
		{share(0.00004), "0.004 %"}, {short(40000), "40 k"}, {short(4000), "4,000"},
		{grouped("needs 3295737 more of P99.99"), "needs 3,295,737 more of P99.99"}, {percentileOf(1000), "P99.9"},
		{ratioText(0.25), "×1/4"}, {ratioText(0.75), "×0.75"}, {ratioText(16), "×16"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

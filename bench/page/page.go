// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

//go:embed assets
var assets embed.FS

// A view is what the template of the page gets.
type view struct {
	*result.Result
	Summary *result.Summary
	CSS     template.CSS
	Keys    []key

	Headline, Lead []string
	Doubts, More   []result.Doubt // Doubts are shown at the top; More are shown after a click
	Claims         []claim
	Lines          []template.HTML
	Refused        []string // percentiles that no load point can support
	SLAs           []slaTable
	Achieved       *figure
	Points         []pointView
	Searching      []template.HTML
	TimeLine       *figure
	Sweeps         []heat
	SweepHeads     []string
	Variants       []variantView
	Facts          []fact
	NotMeasured    string
}

// A figure is one picture, or several panels side by side.
type figure struct {
	ID string
	picture
	Panels  []titled
	Caption string
	Bars    []bars // bars in HTML, instead of a picture
}

// A picture is one chart, drawn in two widths: for a desktop and for a phone.
type picture struct{ Wide, Narrow template.HTML }

type titled struct {
	Title string
	picture
}

// inTwoSizes draws a picture in two widths and returns it as a figure; nil if there is nothing to
// draw.
func inTwoSizes(id, caption string, draw func(w float64) template.HTML) *figure {
	f := &figure{ID: id, Caption: caption, picture: picture{draw(wide), draw(narrow)}}
	if f.Wide == "" {
		return nil
	}
	return f
}

// A pointView is all that the page shows about one load point.
type pointView struct {
	result.PointSummary
	Rows         []row
	FirstByte    []row
	Ratios       *figure
	Normalised   *figure
	Distribution *figure
	Jitter       []bars
	Exceed       *figure
	ExceedRows   []exceedRow
	Bytes        *figure
	Noise        []bars
	Hops         []bars
	EmptyHops    []string
	Machine      []useRow
	Power        []powerRow
	FanOut       *figure
	FanOutRows   []fanOutRow
	FanOutNames  []key
	Live         []liveRow
	Traffic      bool
	Late         bool
}

// A row is a row of the table of percentiles.
type row struct {
	Key   key
	V     result.VariantSummary
	Mean  string
	Cells []cell
	CPU   cell // the server's processor time per request
}

// A cell is the value of a percentile, or the reason why there is none.
type cell struct {
	Name, Value, Interval, Refused string
	Ratio, Ends                    string
	Same                           bool // noise may explain the ratio
	Why                            string
}

// Options of a page. A zero field gets its default.
type Options struct {
	// Probability with which all servers of a fan-out answer in time; the default is
	// result.FanOutProbability.
	Probability float64
}

// Write writes the page of result r.
func Write(w io.Writer, r *result.Result, o Options) error {
	v := &view{Result: r, Summary: result.Summarize(r), CSS: CSS(), Keys: keys(r)}
	fanOuts, err := result.FanOuts(r, cmp.Or(o.Probability, result.FanOutProbability))
	if err != nil {
		return err
	}
	v.Doubts, v.More = v.Summary.Doubts, nil
	if len(v.Doubts) > shown+1 {
		v.Doubts, v.More = v.Doubts[:shown], v.Doubts[shown:]
	}
	v.Headline, v.Lead, v.Claims = v.headline(), v.lead(), v.claims()
	if v.Trial == nil { // a trial's points are services, not loads
		v.Lines, v.Refused = v.percentileLines()
		v.Achieved = v.achieved()
	}
	v.SLAs = v.slaTables()
	for i, p := range v.Summary.Points {
		if len(p.Variants) > 0 {
			v.Points = append(v.Points, v.pointView(p, fanOuts[i]))
		}
	}
	v.Searching = v.searchLines()
	v.TimeLine = v.timeLine()
	v.Sweeps, v.SweepHeads = v.sweeps()
	v.Variants, v.Facts = v.variants(), facts(r)
	v.NotMeasured = v.powerMissing()
	t, err := Head()
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return t.Execute(w, v)
}

// Head returns the templates of this package for other pages of niclane. {{template "head" .}}
// begins a page. It uses the fields Title, Niclane, CSS, Headline and Lead of its argument.
func Head() (*template.Template, error) {
	return template.New("page.html").Funcs(functions).Parse(asset("page.html"))
}

// CSS is the style of all pages, also those of other packages.
func CSS() template.CSS { return template.CSS(asset("chart.css") + asset("style.css")) }

// shown is the number of doubts at the top of the page. A click shows the others.
const shown = 6

func asset(name string) string {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // cannot happen: the file is embedded
	}
	return string(b)
}

var functions = template.FuncMap{
	"duration":   func(v any) string { return result.DurationText(float(v)) },
	"bits":       func(v any) string { return result.BitsText(float(v)) },
	"bytes":      func(v any) string { return result.BytesText(float(v)) },
	"count":      func(v any) string { return count(int64(float(v))) },
	"number":     func(v any) string { return number(float(v)) },
	"share":      func(v any) string { return share(float(v)) },
	"percentile": result.PercentileText,
	"way":        result.Way,
	"class":      func(all []key, name string) string { return keyOf(all, name).Class },
	"last":       func(i int, n int) bool { return i == n-1 },
	"grouped":    grouped,
	"named":      func(name string, r comparedRatio) namedRatio { return namedRatio{name, r} },
}

func float(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	}
	panic(fmt.Sprintf("%T is not a number", v)) // a fault of our own template
}

func (v *view) pointView(p result.PointSummary, f result.FanOut) pointView {
	x := pointView{PointSummary: p}
	for _, s := range p.Variants {
		x.Rows = append(x.Rows, row{Key: keyOf(v.Keys, s.Name), V: s, Mean: result.DurationText(s.Mean),
			Cells: cells(s.Percentiles), CPU: cpuCell(s)})
		if len(s.FirstByte) > 0 {
			x.FirstByte = append(x.FirstByte, row{Key: keyOf(v.Keys, s.Name), V: s,
				Mean: result.DurationText(s.FirstByteMean), Cells: cells(s.FirstByte)})
		}
		x.Traffic = x.Traffic || s.Traffic != nil || s.Generator.Payload > 0
		x.Late = x.Late || len(s.Generator.Late) > 0
	}
	x.Ratios, x.Distribution = v.ratios(p), v.distribution(p)
	x.Exceed, x.ExceedRows = v.exceed(p), v.exceedRows(p)
	x.Bytes = v.latencyBars(p)
	x.Normalised, x.Jitter = v.normalised(p), v.jitterBars(p)
	x.Noise = v.noiseBars(p)
	x.Hops, x.EmptyHops = v.hopBars(p)
	x.Machine, x.Power = useRows(p), v.powerRows(p)
	if x.Live = liveRows(p); x.Live != nil {
		return x // there is no generator, and no fan-out
	}
	x.FanOut = v.fanOut(f)
	x.FanOutRows = fanOutRows(f)
	for _, s := range f.Variants {
		x.FanOutNames = append(x.FanOutNames, keyOf(v.Keys, s.Name))
	}
	return x
}

func cells(list []result.Percentile) (out []cell) {
	for _, c := range list {
		x := cell{Name: result.PercentileText(c.P), Refused: grouped(c.Missing), Ratio: c.RatioText()}
		if r := c.Ratio; r != nil && narrowed(*r) {
			x.Ratio, x.Ends = "×"+times(r.Estimate), times(r.Low)+" to "+times(r.High)
			if c.Difference != nil && c.Difference.Text == stats.Same {
				x.Ratio += " " + stats.Same
			}
		}
		if c.Estimate != nil {
			x.Value, x.Interval = result.DurationText(float64(c.Estimate.Value)), result.EndsText(*c.Estimate)
		}
		if c.Difference != nil {
			x.Why, x.Same = c.Difference.Reason, c.Difference.Text == "~"
		}
		if c.Ratio == nil && x.Ratio != "" {
			x.Why = c.RatioMissing
		}
		out = append(out, x)
	}
	return out
}

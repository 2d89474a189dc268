// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"math"
	"slices"

	"github.com/niclane/niclane/bench/stats"
)

// A Trial is how "niclane trial" measured.
type Trial struct {
	// Seed is what the order of the windows comes from.
	Seed uint64 `json:"seed"`
	// Settle is the least time between a switch and the next window.
	Settle int64 `json:"settleNs"`
	// LoadWithin is how much the loads of a pair of windows may differ at least, in permille, beyond what
	// the loads of the two variants differ by. Other pairs are left out, unless such differences are usual.
	LoadWithin int `json:"loadWithinPermille"`
	// Worth is the smallest change that matters, in permille.
	Worth int `json:"worthPermille"`
	// Measure is what the latency is: the stage of the requests' time in the host.
	Measure string `json:"measure"`
	// Baseline says what the host had in the variant without the files' lanes.
	Baseline string `json:"baseline"`
	// Prepared are the steps that can lose packets. They were made once, and are part of every variant.
	Prepared []string `json:"prepared,omitempty"`
	// Missing are the stages that could not be measured, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
}

// Live is the mode of a trial's points: the load is the service's own traffic.
const Live = "live"

// A LiveWindow is what a service did in a window of a trial. Load.Completed are all its requests.
type LiveWindow struct {
	// Followed is the number of requests that the histograms have, Lost the number of those that the
	// programs had no room for.
	Followed int64 `json:"followed"`
	Lost     int64 `json:"lost,omitempty"`
	// Retransmits are TCP segments of the service, Drops packets that this host dropped.
	Retransmits int64 `json:"retransmits"`
	Drops       int64 `json:"drops"`
	// CPU is the processor time of the service's processes.
	CPU   int64      `json:"cpuNs"`
	Waits []LiveWait `json:"waits"`
	// Settled is the time between the end of the switch and this window; 0: the lanes were not switched.
	Settled int64 `json:"settledNs,omitempty"`
}

// RoundTrip is the stage of the connections' round trip times, in samples of TCP's smoothed time. It is
// judged like the whole time in the host, because it has the answers' time in the card.
const RoundTrip = "round-trip"

// A LiveWait is one stage of the requests' time in the host, or RoundTrip.
type LiveWait struct {
	Stage   string           `json:"stage"`
	Latency *stats.Histogram `json:"latency"`
}

// wait returns the histogram of a stage; nil: it was not measured.
func (w *Window) wait(stage string) *stats.Histogram {
	for _, x := range w.Live.Waits {
		if x.Stage == stage {
			return x.Latency
		}
	}
	return nil
}

// A LiveSummary compares what a trial measured of one service with one variant.
type LiveSummary struct {
	// Pairs is the number of repeats that are compared with the base, LeftOut the number of those that
	// are not, because their loads differ. Both are 0 for the base.
	Pairs   int `json:"pairs"`
	LeftOut int `json:"pairsLeftOut"`
	// Load is the requests per second divided by the base's; nil for the base. It is judged alone.
	Load *Judged `json:"load,omitempty"`
	// Measures, and the wait RoundTrip, are judged together with the percentiles of the whole time in the
	// host.
	Measures []Measure `json:"measures"`
	// The other Waits are judged together. They are judged only if one of the measures differs.
	Waits []WaitSummary `json:"waits"`
}

// A Measure is a quantity of a service other than a time, or a time of its processor.
type Measure struct {
	Name string  `json:"name"`
	Unit string  `json:"unit"`
	V    float64 `json:"value"`
	// Ratio is to the base, by pairs; nil for the base, or if Missing says why.
	Ratio   *Judged `json:"ratio,omitempty"`
	Missing string  `json:"missing,omitempty"`
	ToTell  int     `json:"pairsToTell,omitempty"` // as in Percentile
}

// A WaitSummary has percentiles of one stage.
type WaitSummary struct {
	Stage       string       `json:"stage"`
	Percentiles []Percentile `json:"percentiles"`
}

// waitPercentiles are those of a stage.
var waitPercentiles = []float64{50, 99}

// Names of measures.
const (
	cpuMeasure  = "processor time"
	sentMeasure = "sent again"
	dropMeasure = "drops"
)

// A Drift is how the load of a service changed during a trial, by a straight line through the logarithms
// of the windows' rates.
type Drift struct {
	First float64 `json:"firstPerSecond"`
	Last  float64 `json:"lastPerSecond"`
}

// Change returns the change of the load as a share: 0.4 for 40 % more.
func (d Drift) Change() float64 { return d.Last/d.First - 1 }

// rate returns the requests per second of a window.
func (w *Window) rate() float64 { return float64(w.Load.Completed) / float64(w.Load.Duration) * 1e9 }

// even returns the windows of the rounds in which the loads of both variants were alike, and how many
// rounds it leaves out. A change of the load that all rounds share is not a reason: a lane may make
// clients send more. So it leaves out rounds whose ratio of loads is further from the median than
// LoadWithin, and further than three standard deviations (by the median absolute deviation).
func (t *Trial) even(variant, base map[int]*Window) (v, b map[int]*Window, left int) {
	logs := map[int]float64{}
	var all []float64
	for i, w := range variant {
		if o, ok := base[i]; ok && w.rate() > 0 && o.rate() > 0 {
			logs[i] = math.Log(w.rate() / o.rate())
			all = append(all, logs[i])
		} else if ok {
			left++
		}
	}
	middle := medianOf(all)
	var away []float64
	for _, l := range all {
		away = append(away, math.Abs(l-middle))
	}
	const normal = 1.4826 // the standard deviation of normal values, by their median absolute deviation
	limit := max(math.Log1p(float64(t.LoadWithin)/1000), 3*normal*medianOf(away))
	v, b = map[int]*Window{}, map[int]*Window{}
	for i, l := range logs {
		if math.Abs(l-middle) > limit {
			left++
			continue
		}
		v[i], b[i] = variant[i], base[i]
	}
	return v, b, left
}

// medianOf sorts x and returns its upper median; 0 if x is empty.
func medianOf(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[len(x)/2]
}

// summarizeLive is summarizePoint for a service of a trial, without the judgement of differences.
func (r *Result) summarizeLive(point int, percentiles []float64) PointSummary {
	p := PointSummary{Point: r.Points[point], Name: r.Points[point].Name(), Base: r.Experiment.Base}
	base := r.windows(point, p.Base)
	for _, v := range r.Variants {
		all := r.windows(point, v.Name)
		if len(all) == 0 {
			continue
		}
		sum, _ := summarizeVariant(v.Name, all, percentiles)
		sum.Live = &LiveSummary{Measures: measures(all), Waits: r.waits(all)}
		if v.Name != p.Base {
			windows, against, left := r.Trial.even(all, base)
			sum.Live.Pairs, sum.Live.LeftOut = len(windows), left
			sum.compareLive(windows, against, percentiles)
		}
		p.Variants = append(p.Variants, sum)
	}
	p.Drift = r.drift(point)
	p.Doubts = append(r.doubts(point), r.loadDoubts(p)...)
	return p
}

// compareLive computes the ratios of a variant to the base.
func (v *VariantSummary) compareLive(windows, base map[int]*Window, percentiles []float64) {
	ratios(v.Percentiles, windows, base, toLastByte)
	v.Pairs = pairs(windows, base, percentiles)
	var load judging
	v.Live.Load = load.add(pairedRatio(windows, base, func(w *Window) int64 { return int64(w.rate() * 1000) }))
	load.judge()
	for i := range v.Live.Measures {
		m := &v.Live.Measures[i]
		if m.Missing != "" {
			continue
		}
		if ratio, err := measureRatio(m.Name, windows, base); err != nil {
			m.Missing = refusal(err)
		} else {
			m.Ratio = &Judged{Ratio: ratio}
		}
	}
	for _, x := range v.Live.Waits {
		ratios(x.Percentiles, windows, base, stageView(x.Stage))
	}
}

// ratios sets the ratios of percentiles to the base's. It does not judge them.
func ratios(percentiles []Percentile, windows, base map[int]*Window, of view) {
	new(family).compare(percentiles, windows, base, of)
}

// stageView is the view of one stage of a trial.
func stageView(stage string) view {
	return func(w *Window) (*stats.Histogram, *stats.Series) { return w.wait(stage), nil }
}

// waits returns the stages that a variant has, with their percentiles.
func (r *Result) waits(windows map[int]*Window) (out []WaitSummary) {
	var stages []string
	for _, i := range rounds(windows) {
		for _, x := range windows[i].Live.Waits {
			if x.Stage != r.Trial.Measure && !slices.Contains(stages, x.Stage) { // Measure is the latency itself
				stages = append(stages, x.Stage)
			}
		}
	}
	for _, stage := range stages {
		_, sample := pool(windows, stageView(stage))
		out = append(out, WaitSummary{stage, intervals(sample, waitPercentiles)})
	}
	return out
}

// counted returns the number that a measure counts in a window.
func counted(name string, w *Window) int64 {
	if name == dropMeasure {
		return w.Live.Drops
	}
	return w.Live.Retransmits
}

// measures returns the measures of a variant, without ratios.
func measures(windows map[int]*Window) []Measure {
	var requests, cpu, sent, dropped float64
	for _, w := range windows {
		requests += float64(w.Load.Completed)
		cpu += float64(w.Live.CPU)
		sent += float64(w.Live.Retransmits)
		dropped += float64(w.Live.Drops)
	}
	out := []Measure{{Name: cpuMeasure, Unit: PerRequestNs, V: cpu / max(requests, 1)}}
	if cpu == 0 {
		out[0].Missing = "not known"
	}
	const million = 1e6
	return append(out, Measure{Name: sentMeasure, Unit: PerMillion, V: sent / max(requests, 1) * million},
		Measure{Name: dropMeasure, Unit: PerMillion, V: dropped / max(requests, 1) * million})
}

// PerMillion is the unit of rare events.
const PerMillion = "of a million requests"

// measureRatio compares a measure by pairs of repeats.
func measureRatio(name string, windows, base map[int]*Window) (stats.Ratio, error) {
	if name == cpuMeasure {
		return pairedRatio(windows, base, (*Window).serverCPU)
	}
	var all []stats.Pair
	var events int64
	for _, i := range rounds(windows) {
		a, b := windows[i], base[i]
		x, y := counted(name, a), counted(name, b)
		events += x + y
		p := stats.Pair{Variant: 1, Base: 1}
		if x+y > 0 {
			// Half an event more keeps the ratio finite. It makes the ratio smaller, never larger.
			p = stats.Pair{Variant: perRequest(x, a), Base: perRequest(y, b)}
		}
		all = append(all, p)
	}
	if events == 0 {
		return stats.Ratio{}, fmt.Errorf("none")
	}
	return stats.PairedRatio(all)
}

// perRequest returns half an event more than events, for 10^12 requests.
func perRequest(events int64, w *Window) int64 {
	return max(1, int64((float64(events)+0.5)/float64(max(w.Load.Completed, 1))*1e12))
}

// drift fits a line to the logarithms of a service's rates, in the order of the windows.
func (r *Result) drift(point int) *Drift {
	var x, y []float64
	for i := range r.Windows {
		if w := &r.Windows[i]; w.Point == point && w.rate() > 0 {
			x, y = append(x, float64(len(x))), append(y, math.Log(w.rate()))
		}
	}
	n := float64(len(x))
	if n < 2 {
		return nil
	}
	var mx, my, sxy, sxx float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	for i := range x {
		sxy, sxx = sxy+(x[i]-mx)*(y[i]-my), sxx+(x[i]-mx)*(x[i]-mx)
	}
	at := func(x float64) float64 { return math.Exp(my + sxy/sxx*(x-mx)) }
	return &Drift{First: at(0), Last: at(n - 1)}
}

// notable is the change of a load, as a share, that is worth a doubt.
const notable = 0.2

// loadDoubts returns the doubts about a service's load.
func (r *Result) loadDoubts(p PointSummary) []Doubt {
	var out doubts
	at := func(variant string) Where { return Where{Point: p.Name, Variant: variant} }
	if d := p.Drift; d != nil && math.Abs(math.Log(d.Last/d.First)) > math.Log1p(notable) {
		out.list = append(out.list, Doubt{Text: fmt.Sprintf("the load of %s changed by %+.0f %% during the trial, "+
			"from %.0f/s to %.0f/s; the windows of a pair are neighbours in a random order, so this favours no variant",
			p.Name, 100*d.Change(), d.First, d.Last)})
	}
	for _, v := range p.Variants {
		l := v.Live
		if l.LeftOut > 0 {
			out.add(fmt.Sprintf("%d of %d pairs of windows are left out: their loads differ by more than %.3g %%, "+
				"and more than others", l.LeftOut, l.LeftOut+l.Pairs, float64(r.Trial.LoadWithin)/10), at(v.Name), -1)
		}
		if l.Load != nil && l.Load.Difference.Text != stats.Same && math.Abs(math.Log(l.Load.Estimate)) > 0.02 {
			out.add(fmt.Sprintf("the load differs from that of %s: ×%.3f (%.3f to %.3f); clients that wait for "+
				"answers send more when these come sooner", p.Base, l.Load.Estimate, l.Load.Low, l.Load.High),
				at(v.Name), -1)
		}
	}
	return out.list
}

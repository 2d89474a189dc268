// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/stats"
	y "github.com/niclane/niclane/internal/strictyaml"
)

// needOf reports the required keys that one section lacks.
func (r *reader) needOf(all []section, ref, path string) {
	if path != "" && (!r.Given(path) || slices.Contains(r.broken, path)) {
		return
	}
	i := slices.IndexFunc(all, func(s section) bool { return s.ref == ref })
	for _, name := range all[i].required {
		if p := strings.TrimPrefix(path+"."+name, "."); !r.Given(p) {
			r.broken = append(r.broken, p)
			r.Failf(path, "%s is missing, want %s", name, all[i].wants[name])
		}
	}
}

// require reports the required keys that any section of the file lacks.
func (r *reader) require() {
	all := sections()
	need := func(ref, path string) { r.needOf(all, ref, path) }
	list := func(ref, path string, n int) {
		for i := range n {
			need(ref, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	need("experiment", "")
	if !r.Given("lab") && r.on == nil {
		r.Failf("", "lab is missing, want lab: {}, or a run with --hosts")
	}
	need("server", "server")
	list("process", "server.beside", len(r.e.Server.Beside))
	need("cache", "server.cache")
	need("workload", "workload")
	list("object", "workload.objects", len(r.e.Workload.Objects))
	list("noise", "noise", len(r.e.Noise))
	list("probe", "probes", len(r.e.Probes))
	list("variant", "variants", len(r.e.Variants))
	r.needPower(all, r.e.Power)
	for i := range r.e.SLAs() {
		need("sla", item(r, "sla", i))
	}
	need("search", "search")
	need("bounds", "search.max-rate")
	need("sweep", "sweep")
	list("goal", "goals", len(r.e.Goals))
}

// fine reports whether the values at the paths, and all values inside them, were read without
// error. Only such values can be checked against other keys.
func (r *reader) fine(paths ...string) bool {
	in := func(outer, inner string) bool {
		rest, ok := strings.CutPrefix(inner, outer)
		return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return !slices.ContainsFunc(paths, func(p string) bool {
		return slices.ContainsFunc(r.broken, func(b string) bool { return in(p, b) || in(b, p) })
	})
}

// refuse reports each of the keys that is given. why says which other setting excludes them.
func (r *reader) refuse(why string, paths ...string) {
	for _, p := range paths {
		if r.Given(p) && r.fine(p) {
			r.Failf(p, "found with %s", why)
		}
	}
}

// check refuses contradictions between keys.
func (r *reader) check() {
	r.checkWhere()
	r.checkServer()
	r.checkWorkload()
	r.checkLoad()
	r.checkNoise()
	r.checkProbes()
	r.checkVariants()
	r.checkRepeats()
	r.checkSearch()
	r.checkSweep()
	r.checkGoals()
	r.checkGates()
}

// checkTime refuses a time limit that is shorter than the sum of all windows.
func (r *reader) checkTime() {
	if len(r.Errors()) == 0 {
		if least, _ := Estimate(&r.e); least > r.e.TimeLimit {
			r.Failf("time-limit", "found %s, want more than the %s that the windows take by themselves",
				y.DurationText(r.e.TimeLimit), roundUp(least))
		}
	}
}

func (r *reader) checkWhere() {
	if r.on != nil && r.on.Noise == nil && len(r.e.Noise) > 0 {
		r.Failf("noise", "found, but the hosts file has no host for noise; want noise in the hosts file")
	}
	r.checkSpread()
	l := r.e.Lab
	if l == nil || l.Card != "none" {
		return
	}
	if len(l.SwitchFirst) > 0 {
		r.Failf("lab.switch-first", "found with card: none, whose switch is a bridge; want a card, or no switch-first")
	}
	if key := l.Cost(); key != "" {
		r.Failf("lab."+key, "found with card: none; want a card, which models processors, or no %s", key)
	}
}

// enough refuses a percentile if the windows together have too few requests for it. It checks open
// loops only: in a closed loop the rate is not known in advance.
func (r *reader) enough(path string, p float64, rate int) {
	l := r.e.Load
	if !r.fine(path, "load", "repeats") || p == 0 || rate == 0 || l.Mode != Open {
		return
	}
	have := int64(float64(rate) * float64(l.Window) / 1e9 * float64(r.e.Repeats.Max))
	if need := stats.Needed(p); have < need {
		r.Failf(path, "P%s needs %d requests; %d windows of %s at %d/s have %d", y.NumberText(p), need,
			r.e.Repeats.Max, y.DurationText(l.Window), rate, have)
	}
}

// lowest returns the lowest rate that the repeats measure; 0 if not known.
func (r *reader) lowest() int {
	if len(r.e.Load.Rates) > 0 {
		return r.e.Load.Rates[0]
	}
	return 0
}

func (r *reader) checkRepeats() {
	p := &r.e.Repeats
	if !r.fine("repeats") {
		return
	}
	if p.Max < p.Min {
		r.Failf("repeats.max", "found %d, want at least min: %d", p.Max, p.Min)
		return
	}
	if p.Until == nil {
		if p.Max > p.Min {
			r.Failf("repeats.max", "found %d above min: %d without until; only until can end the repeats before max; "+
				"want until, or min only", p.Max, p.Min)
		}
		return
	}
	if p.Max == p.Min {
		r.Failf("repeats.until", "found with max: %d and the same min, want max above min", p.Max)
		return
	}
	r.enough("repeats.until", p.Until.Percentile, r.lowest())
}

// checkSLAs refuses an SLA that is there twice, and a first SLA whose percentile the windows have too
// few requests for. With too few for a further SLA, the report says that it is not known whether it
// is met: a file keeps all SLAs in its small sizes.
func (r *reader) checkSLAs() {
	if !r.fine("sla") {
		return
	}
	all := r.e.SLAs()
	for i, s := range all {
		path := item(r, "sla", i)
		if i == 0 {
			r.enough(path, s.Percentile, r.lowest())
		}
		if s.Percentile > 0 && s.At > 0 && slices.Contains(all[:i], s) {
			r.Failf(path, "found P%s at most %s twice, want different SLAs", y.NumberText(s.Percentile),
				y.DurationText(s.At))
		}
	}
}

// longestSearch is the maximum length of a search window, in ns.
const longestSearch = int64(10 * time.Minute)

func (r *reader) checkSearch() {
	r.checkSLAs()
	s := r.e.Search
	if s == nil || !r.fine("search", "load.mode") {
		return
	}
	if r.e.Load.Mode == Closed {
		r.Failf("search", "found with mode: closed (line %d), whose connections decide the rate; want mode: open",
			r.Line("load.mode"))
	}
	if r.e.SLA == nil && !s.FivePercentRule {
		r.Failf("search", "found without sla and five-percent-rule, so that every rate holds; want one of them")
	}
	if s.To <= s.From {
		r.Failf("search.max-rate", "found from %d to %d, want to above from", s.From, s.To)
	}
	for i, name := range s.Variants {
		path := item(r, "search.variants", i)
		r.variant(path, name)
		if slices.Contains(s.Variants[:i], name) {
			r.Failf(path, "found %s twice in one list", name)
		}
	}
	for i, share := range s.LatencyAt {
		if i > 0 && share <= s.LatencyAt[i-1] {
			r.Failf("search.latency-at", "found %s after %s, want ascending order", y.PermilleText(share),
				y.PermilleText(s.LatencyAt[i-1]))
		}
	}
	if r.e.SLA != nil && r.fine("sla", "load.window", "search.max-rate") {
		if w := SearchWindow(&r.e, float64(s.From)); w > max(longestSearch, r.e.Load.Window) {
			r.Failf("search.max-rate.from", "P%s needs windows of %s at %d/s, want at most %s; a higher rate needs "+
				"shorter windows", y.NumberText(r.e.SLA.Percentile), roundUp(w), s.From, time.Duration(longestSearch))
		}
	}
}

func (r *reader) checkSweep() {
	s := r.e.Sweep
	if s == nil || !r.fine("sweep", "variants", "noise") {
		return
	}
	if len(r.e.Noise) == 0 {
		r.Failf("sweep", "found without noise, want noise for it to vary")
		return
	}
	for i, name := range s.Variants {
		path := item(r, "sweep.variants", i)
		if v := r.variant(path, name); v != nil && !v.Noise {
			r.Failf(path, "found %s, which has no noise (line %d)", name, r.Line(r.variantPath(name)))
		}
		if slices.Contains(s.Variants[:i], name) {
			r.Failf(path, "found %s twice in one list", name)
		}
	}
	for i, share := range s.Noise {
		for _, d := range []string{ToSUT, FromSUT} {
			if n := r.streams(d); n*share > 1000 {
				r.Failf(item(r, "sweep.noise", i), "found %s for each of %d noises %s, want at most 100%% of the "+
					"link in all", y.PermilleText(share), n, d)
				break
			}
		}
	}
}

// item returns the path of item i if the value at path is a list, else path.
func item(r *reader, path string, i int) string {
	if p := fmt.Sprintf("%s[%d]", path, i); r.Given(p) {
		return p
	}
	return path
}

func (r *reader) checkGoals() {
	for i := range r.e.Goals {
		g := &r.e.Goals[i]
		path := fmt.Sprintf("goals[%d]", i)
		if !r.fine(path, "base") {
			continue
		}
		a, b := r.variant(path+".variant", g.Variant), r.variant(path+".base", g.Base)
		switch {
		case a != nil && a == b:
			r.Failf(path, "found %s divided by itself, want base: another variant", g.Variant)
		case (g.AtMost == 0) == (g.AtLeast == 0):
			r.Failf(path, "want at-most or at-least, one of the two")
		case g.Measure == MeasureLatency && g.Percentile == 0:
			r.Failf(path, "percentile is missing, want %s", percentile().Want)
		case g.Measure != MeasureLatency:
			r.refuse("measure: "+g.Measure+", which has no percentiles", path+".percentile")
		default:
			r.enough(path, g.Percentile, r.lowest())
		}
		if g.Measure == MeasureNoise && a != nil && b != nil && (!a.Noise || !b.Noise) {
			r.Failf(path, "found measure: noise of %s and %s, want variants that both have noise", g.Variant, g.Base)
		}
	}
}

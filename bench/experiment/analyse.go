// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
)

// A variantText is a variant as it is read, with the places of its lanes' texts.
type variantText struct {
	Variant
	laneTexts
}

// laneTexts are where lanes stand, for the lines of their errors.
type laneTexts struct{ server, client y.Value }

func variantKeys() []y.Key[variantText] {
	return []y.Key[variantText]{
		y.Of("name", name(), "has to be given",
			"Name of the variant, in results and goals.",
			func(t *variantText, x string) { t.Name = x }),
		y.Of("title", line("a title", 200), "the name",
			"What the report calls it.",
			func(t *variantText, x string) { t.Title = x }),
		y.Of("noise", y.Boolean(), "on where there is `noise`",
			"Whether the noise runs beside the load.",
			func(t *variantText, x bool) { t.Noise = x }),
		lanesKey("lanes", "The text of a lanes file, see lanes.yaml(5), in which `$device`, `$cgroup`, `$address`, "+
			"`$port`, `$link` and `$cpus` are replaced by the SUT's device, the control group of the server, what "+
			"it listens on, the link's rate, and the processors that `placement` or the hosts file gives the "+
			"server; `$$` is a dollar sign.",
			func(t *variantText, x string, at y.Value) { t.Lanes, t.server = x, at }),
		y.Of("lanes-file", y.Path("a lanes file"), "no lanes",
			"A lanes file, see lanes.yaml(5), taken as it is. Instead of `lanes`.",
			func(t *variantText, x string) { t.LanesFile = x }),
		lanesKey("client-lanes", "The text of a lanes file for every client. `$device` and `$link` are the client's "+
			"device, which the hosts file has to give, and its rate; `$address` and `$port` are the server's.",
			func(t *variantText, x string, at y.Value) { t.ClientLanes, t.client = x, at }),
		y.Of("lane-policy", lanePolicy(), "none",
			"The LanePolicy that the cluster of `kind: pod` has in this variant, see PODS. `$device` and `$link` "+
				"are replaced by the SUT's device and the link's rate.",
			func(t *variantText, x string) { t.LanePolicy = x }),
		y.Of("server", variantServer(), "as the others'",
			"What the server has in this variant: see A VARIANT'S SERVER. It is started anew, and filled, where "+
				"variants differ in it.",
			func(t *variantText, x VariantServer) { t.Server = &x }),
		y.Of("tune", tune(), "as it is",
			"What is done for the server on its host without lanes: see TUNE.",
			func(t *variantText, x Tune) { t.Tune = &x }),
		y.Of("force", config.Force(), "what the lanes file says",
			"Mechanisms that must be used, by part of a lane, in the place of `globals.force`; `niclane probe` "+
				"lists them.",
			func(t *variantText, x map[string]string) { t.Force = x }),
	}
}

// lanesKey keeps the place of the text.
func lanesKey(name, doc string, set func(*variantText, string, y.Value)) y.Key[variantText] {
	text := y.Text("the text of a lanes file, under "+name+": |", 64<<10)
	k := y.Of(name, text, "no lanes", doc, func(*variantText, string) {})
	k.Schema = y.Schema{"type": "string"}
	k.Read = func(v y.Value, t *variantText) {
		if x, ok := text.Read(v); ok {
			set(t, x, v)
		}
	}
	return k
}

func variants() y.Kind[[]variantText] {
	return y.Sections("variant", "a list of variants, each with a name", 32, variantKeys,
		func(y.Value) variantText { return variantText{} })
}

func repeatsKeys() []y.Key[Repeats] {
	return []y.Key[Repeats]{
		y.Of("min", y.Integer(1, maxRepeats), "10, or `max` if that is less",
			"Repeats of each variant at each load point, at least. To tell any of m ratios that are shown together "+
				"from chance takes log2(40 m) of them, 10 for 24 ratios (7 variants, 4 percentiles); fewer than 6 "+
				"are judged by t intervals.",
			func(r *Repeats, x int) { r.Min = x }),
		y.Of("max", y.Integer(1, maxRepeats), "`min`",
			"At most this many, if `until` is not met.",
			func(r *Repeats, x int) { r.Max = x }),
		y.Of("until", until(), "`max` repeats, whatever the intervals",
			"Repeats end when the 95 % interval of this percentile is this narrow in every variant.",
			func(r *Repeats, x Until) { r.Until = &x }),
	}
}

func repeats() y.Kind[Repeats] {
	return y.Nested("repeats", "a mapping of keys: min, max, until", repeatsKeys, func() Repeats { return Repeats{} })
}

const minRepeats = 10

func untilKeys() []y.Key[Until] {
	return []y.Key[Until]{
		y.Of("percentile", percentile(), "99",
			"Percentile of the latency.",
			func(u *Until, x float64) { u.Percentile = x }),
		y.Of("width", y.Share(1, 2000), "10%",
			"Width of its interval, as a share of its value.",
			func(u *Until, x int) { u.Width = x }),
	}
}

func until() y.Kind[Until] {
	return y.Nested("until", "a mapping of keys: percentile, width", untilKeys, func() Until { return Until{99, 100} })
}

func slaKeys() []y.Key[SLA] {
	return []y.Key[SLA]{
		y.Of("percentile", percentile(), "has to be given",
			"Percentile of the latency that counts.",
			func(s *SLA, x float64) { s.Percentile = x }),
		y.Of("at", y.Duration(time.Microsecond, time.Hour), "has to be given",
			"What it may be.",
			func(s *SLA, x int64) { s.At = x }),
	}
}

func sla() y.Kind[SLA] {
	return y.Nested("sla", "a mapping of keys: percentile, at", slaKeys, func() SLA { return SLA{} })
}

func boundsKeys() []y.Key[Bounds] {
	rate := y.Integer(1, maxRate)
	return []y.Key[Bounds]{
		y.Of("from", rate, "has to be given",
			"Rate per second that holds; if it does not, that is the result.",
			func(b *Bounds, x int) { b.From = x }),
		y.Of("to", rate, "has to be given",
			"Rate per second at which the search ends, whether it holds or not.",
			func(b *Bounds, x int) { b.To = x }),
		y.Of("resolution", y.Share(1, 500), "5%",
			"How close the result is to the rate that no longer holds.",
			func(b *Bounds, x int) { b.Resolution = x }),
	}
}

func boundsOf() y.Kind[Bounds] {
	return y.Nested("bounds", "a mapping of keys: from, to, resolution", boundsKeys,
		func() Bounds { return Bounds{Resolution: 50} })
}

func searchKeys() []y.Key[Search] {
	return []y.Key[Search]{
		y.Of("max-rate", boundsOf(), "has to be given",
			"Where the highest rate is looked for that holds `sla`, with confidence, in windows that are longer "+
				"than `load.window` where its percentile needs more requests.",
			func(s *Search, x Bounds) { s.From, s.To, s.Resolution = x.From, x.To, x.Resolution }),
		y.Of("five-percent-rule", y.Boolean(), "on",
			"Whether a rate of which less than 95 % is achieved does not hold.",
			func(s *Search, x bool) { s.FivePercentRule = x }),
		y.Of("latency-at", y.Mapped(y.OneOrList(y.Share(1, 1000), 16), func(x []int) []int { return x }),
			"10%, 50%, 90%",
			"Shares of the rate found at which latency is then measured, with `repeats`.",
			func(s *Search, x []int) { s.LatencyAt = x }),
		y.Of("variants", y.OneOrList(name(), 32), "all of them",
			"Names of the variants whose highest rate is looked for: it takes as many windows as all else.",
			func(s *Search, x []string) { s.Variants = x }),
	}
}

func search() y.Kind[Search] {
	return y.Nested("search", "a mapping of keys: max-rate, five-percent-rule, latency-at, variants", searchKeys,
		func() Search {
			return Search{FivePercentRule: true, LatencyAt: []int{100, 500, 900}}
		})
}

func sweepKeys() []y.Key[Sweep] {
	return []y.Key[Sweep]{
		y.Of("variants", y.OneOrList(name(), 32), "has to be given",
			"Names of the variants, which have noise.",
			func(s *Sweep, x []string) { s.Variants = x }),
		y.Of("noise", y.OneOrList(y.Share(1, 950), 64), "has to be given",
			"Shares of the link, in the place of the rate of each noise.",
			func(s *Sweep, x []int) { s.Noise = x }),
		y.Of("switch-buffer", y.OneOrList(y.Size(2000, 1<<30), 64), "as it is",
			"Buffers of the lab's switch toward the SUT.",
			func(s *Sweep, x []int64) { s.SwitchBuffers = x }),
		y.Of("window", y.Duration(100*time.Millisecond, time.Hour), "1200ms",
			"Counted time of each combination, measured once.",
			func(s *Sweep, x int64) { s.Window = x }),
	}
}

func sweep() y.Kind[Sweep] {
	return y.Nested("sweep", "a mapping of keys: variants, noise, switch-buffer, window", sweepKeys, func() Sweep {
		return Sweep{Window: int64(1200 * time.Millisecond)}
	})
}

func goalKeys() []y.Key[Goal] {
	return []y.Key[Goal]{
		y.Of("measure", y.Word(MeasureLatency, MeasureRate, MeasureNoise), "latency",
			"A percentile of the latency, the achieved rate of requests, or that of the noise.",
			func(g *Goal, x string) { g.Measure = x }),
		y.Of("percentile", percentile(), "has to be given with latency",
			"Percentile of the latency.",
			func(g *Goal, x float64) { g.Percentile = x }),
		y.Of("variant", name(), "has to be given",
			"The variant that is judged.",
			func(g *Goal, x string) { g.Variant = x }),
		y.Of("base", name(), "`base` of the file",
			"The variant that it is divided by.",
			func(g *Goal, x string) { g.Base = x }),
		y.Of("at-most", y.Number(0.0001, 10_000), "this or `at-least` is needed",
			"The ratio that is to be met, with the whole interval.",
			func(g *Goal, x float64) { g.AtMost = x }),
		y.Of("at-least", y.Number(0.0001, 10_000), "this or `at-most` is needed",
			"The same from below.",
			func(g *Goal, x float64) { g.AtLeast = x }),
	}
}

func goals() y.Kind[[]Goal] {
	return y.Sections("goal", "a list of goals, each with variant and at-most or at-least", 64, goalKeys,
		func(y.Value) Goal { return Goal{Measure: MeasureLatency} })
}

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
)

// A variantText is a variant as read from the file, with the positions of its lanes texts.
type variantText struct {
	Variant
	laneTexts
}

// laneTexts are the positions of a variant's two lanes texts. Errors in these texts are reported
// with their lines.
type laneTexts struct{ server, client y.Value }

func variantKeys() []y.Key[variantText] {
	return []y.Key[variantText]{
		y.Of("name", name(), "required",
			"Name of the variant, in results and goals.",
			func(t *variantText, x string) { t.Name = x }),
		y.Of("title", line("a title", 200), "the name",
			"Title of the variant in the report.",
			func(t *variantText, x string) { t.Title = x }),
		y.Of("noise", y.Boolean(), "on where there is `noise`",
			"Whether the noise runs beside the load.",
			func(t *variantText, x bool) { t.Noise = x }),
		lanesKey("lanes",
			"The text of a lanes file, see lanes.yaml(5). `$device` stands for the SUT's device, `$cgroup` for "+
				"the server's control group, `$address` and `$port` for the address and port on which it listens. "+
				"`$threads`, `$queues` and `$pollers` stand for the keys of `server`. `$link` is the link's rate. "+
				"`$cpus` are the processors that `placement` or the hosts file gives the server, `$pollcpus` those "+
				"that it gives the card's pollers, or `auto`. If the SUT has several cards, each has lanes of its own "+
				"by this text, with its own `$device`, `$address` and `$pollcpus`. `$$` is a dollar sign.",
			func(t *variantText, x string, at y.Value) { t.Lanes, t.server = x, at }),
		y.Of("lanes-file", y.Path("a lanes file"), "no lanes",
			"A lanes file, see lanes.yaml(5), used unchanged. Instead of `lanes`.",
			func(t *variantText, x string) { t.LanesFile = x }),
		lanesKey("client-lanes",
			"The text of a lanes file for every client. `$device` is the client's device, which the hosts file "+
				"must name, and `$link` its rate. `$address` and `$port` are the server's. The lab's client has a "+
				"device with one queue: its lanes need `force: {queue-set: shared}` in `globals`.",
			func(t *variantText, x string, at y.Value) { t.ClientLanes, t.client = x, at }),
		y.Of("lane-policy", lanePolicy(), "none",
			"The LanePolicy of this variant in the cluster of `kind: pod`, see PODS. `$device` stands for the "+
				"SUT's device, `$queues` and `$pollers` for the keys of `server`, `$link` for the link's rate as a "+
				"quantity of bit/s (10G).",
			func(t *variantText, x string) { t.LanePolicy = x }),
		y.Of("server", variantServer(), "the same as in the others",
			"Settings of the server in this variant: see A VARIANT'S SERVER. The run restarts and refills the "+
				"server where variants differ in them.",
			func(t *variantText, x VariantServer) { t.Server = &x }),
		y.Of("tune", tune(), "nothing",
			"Settings of the host for the server without lanes: see TUNE.",
			func(t *variantText, x Tune) { t.Tune = &x }),
		y.Of("force", config.Force(), "what the lanes file says",
			"Mechanisms that must be used, by part of a lane. They replace `globals.force`. `niclane probe` lists "+
				"them.",
			func(t *variantText, x map[string]string) { t.Force = x }),
	}
}

// lanesKey returns a key for the text of a lanes file. set gets the text and its position in the
// experiment file.
func lanesKey(name, doc string, set func(*variantText, string, y.Value)) y.Key[variantText] {
	text := y.Text("the text of a lanes file, under "+name+": |", 1<<20)
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
			"Minimum of repeats of each variant at each load point. If m ratios are shown together, the report needs "+
				"log2(40 m) repeats to tell any of them from chance: 10 for 24 ratios (7 variants, 4 percentiles). "+
				"Fewer than 6 are judged by t intervals.",
			func(r *Repeats, x int) { r.Min = x }),
		y.Of("max", y.Integer(1, maxRepeats), "`min`",
			"Maximum of repeats, if `until` is not met.",
			func(r *Repeats, x int) { r.Max = x }),
		y.Of("until", until(), "`max` repeats, independent of the intervals",
			"Repeats end when the 95 % interval of this percentile is narrow enough in every variant.",
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
		y.Of("percentile", percentile(), "required",
			"Percentile of the latency that counts.",
			func(s *SLA, x float64) { s.Percentile = x }),
		y.Of("at", y.Duration(time.Microsecond, time.Hour), "required",
			"Limit of that percentile.",
			func(s *SLA, x int64) { s.At = x }),
	}
}

// maxSLAs is the largest number of SLAs of a file.
const maxSLAs = 8

func slas() y.Kind[[]SLA] {
	one := y.Nested("sla", "a mapping of keys: percentile, at", slaKeys, func() SLA { return SLA{} })
	return y.OneOrList(one, maxSLAs)
}

func boundsKeys() []y.Key[Bounds] {
	rate := y.Integer(1, maxRate)
	return []y.Key[Bounds]{
		y.Of("from", rate, "required",
			"Requests per second at which the search begins. If they do not hold, that is the result.",
			func(b *Bounds, x int) { b.From = x }),
		y.Of("to", rate, "required",
			"Requests per second at which the search ends, whether they hold or not.",
			func(b *Bounds, x int) { b.To = x }),
		y.Of("resolution", y.Share(1, 500), "5%",
			"Distance of the result from the rate that no longer holds.",
			func(b *Bounds, x int) { b.Resolution = x }),
	}
}

func boundsOf() y.Kind[Bounds] {
	return y.Nested("bounds", "a mapping of keys: from, to, resolution", boundsKeys,
		func() Bounds { return Bounds{Resolution: 50} })
}

func searchKeys() []y.Key[Search] {
	return []y.Key[Search]{
		y.Of("max-rate", boundsOf(), "required",
			"Range of the search for the highest rate that holds `sla` with confidence. If the percentile of "+
				"`sla` needs more requests, its windows are longer than `load.window`.",
			func(s *Search, x Bounds) { s.From, s.To, s.Resolution = x.From, x.To, x.Resolution }),
		y.Of("five-percent-rule", y.Boolean(), "on",
			"Whether a rate fails if less than 95 % of it is achieved.",
			func(s *Search, x bool) { s.FivePercentRule = x }),
		y.Of("latency-at", y.Mapped(y.OneOrList(y.Share(1, 1000), 16), func(x []int) []int { return x }),
			"10%, 50%, 90%",
			"Shares of the found rate at which the run then measures latency, with `repeats`.",
			func(s *Search, x []int) { s.LatencyAt = x }),
		y.Of("variants", y.OneOrList(name(), 32), "all of them",
			"Variants whose highest rate the run looks for. The search takes as many windows as the rest of the run.",
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
		y.Of("variants", y.OneOrList(name(), 32), "required",
			"Names of the variants. They must have noise.",
			func(s *Sweep, x []string) { s.Variants = x }),
		y.Of("noise", y.OneOrList(y.Share(1, 950), 64), "required",
			"Shares of the link that replace the rate of each noise.",
			func(s *Sweep, x []int) { s.Noise = x }),
		y.Of("switch-buffer", y.OneOrList(y.Size(2000, 1<<30), 64), "as it is",
			"Buffers of the lab's switch toward the SUT.",
			func(s *Sweep, x []int64) { s.SwitchBuffers = x }),
		y.Of("window", y.Duration(100*time.Millisecond, time.Hour), "1200ms",
			"Counted time of each combination, which is measured once.",
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
		y.Of("measure", y.Word(MeasureLatency, MeasureRate, MeasureNoise, MeasureProcessorTime), "latency",
			"What is judged: a percentile of the latency, the achieved rate of requests, the achieved rate of "+
				"the noise, or the server's processor time per request.",
			func(g *Goal, x string) { g.Measure = x }),
		y.Of("percentile", percentile(), "required with latency",
			"Percentile of the latency.",
			func(g *Goal, x float64) { g.Percentile = x }),
		y.Of("variant", name(), "required",
			"The variant that is judged.",
			func(g *Goal, x string) { g.Variant = x }),
		y.Of("base", name(), "`base` of the file",
			"The variant by which it is divided.",
			func(g *Goal, x string) { g.Base = x }),
		y.Of("at-most", y.Number(0.0001, 10_000), "this or `at-least` is required",
			"Upper limit of the ratio. The whole interval must meet it.",
			func(g *Goal, x float64) { g.AtMost = x }),
		y.Of("at-least", y.Number(0.0001, 10_000), "this or `at-most` is required",
			"Lower limit of the ratio, likewise.",
			func(g *Goal, x float64) { g.AtLeast = x }),
	}
}

func goals() y.Kind[[]Goal] {
	return y.Sections("goal", "a list of goals, each with variant and at-most or at-least", 64, goalKeys,
		func(y.Value) Goal { return Goal{Measure: MeasureLatency} })
}

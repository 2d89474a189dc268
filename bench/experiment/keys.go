// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/niclane/niclane/bench/power"
	y "github.com/niclane/niclane/internal/strictyaml"
)

// version is the version of the file format.
const version = 1

const topWant = "version, title, lab, server, workload, load and variants"

// A reader reads one file into an experiment.
type reader struct {
	*y.Reader
	e       Experiment
	on      *Hosts // nil: the experiment runs in its lab
	quick   bool
	virtual bool
	trial   bool
	scale   int         // factor for numbers of connections, in permille; 0: unchanged
	left    []string    // names of the variants to keep, from a size; nil: keep all
	texts   []laneTexts // positions of the variants' lanes texts
	// broken lists the paths of values that are missing or could not be read.
	broken []string
}

func start() Experiment {
	return Experiment{HostNoise: hostNoiseStart(), TimeLimit: int64(4 * time.Hour)}
}

func hostNoiseStart() HostNoise { return HostNoise{Window: int64(time.Second), Percentile: 99} }

// topKeys returns the keys at the top level of a file.
func topKeys() []y.Key[reader] {
	return []y.Key[reader]{
		versionKey(),
		y.Of("title", line("a title", 200), "required",
			"Title of the experiment in the report.",
			func(r *reader, x string) { r.e.Title = x }),
		y.Of("lab", lab(), "none; the file then needs `--hosts`",
			"The lab in which the experiment runs, on this machine. `--hosts` replaces it. See LAB.",
			func(r *reader, x Lab) { r.e.Lab = &x }),
		y.Of("server", server(), "required",
			"The server: see SERVER.",
			func(r *reader, x Server) { r.e.Server = x }),
		y.Of("workload", workload(), "required",
			"What the generators ask for: see WORKLOAD.",
			func(r *reader, x Workload) { r.e.Workload = x }),
		y.Of("load", load(), "required",
			"How the generators ask: see LOAD.",
			func(r *reader, x Load) { r.e.Load = x }),
		y.Of("probes", probes(), "none",
			"Further servers with a load of their own: see PROBES.",
			func(r *reader, x []Probe) { r.e.Probes = x }),
		y.Of("noise", noise(), "none",
			"Bulk traffic beside the load: see NOISE.",
			func(r *reader, x []Noise) { r.e.Noise = x }),
		y.Of("placement", placement(), "each host's processors, SCHED_OTHER",
			"Processors and priorities of the processes, the same in every variant: see PLACEMENT.",
			func(r *reader, x Placement) { r.e.Placement = x }),
		y.Of("variants", variants(), "required",
			"What the experiment compares: see VARIANTS.",
			func(r *reader, x []variantText) {
				for _, t := range x {
					r.e.Variants = append(r.e.Variants, t.Variant)
					r.texts = append(r.texts, t.laneTexts)
				}
			}),
		y.Of("base", name(), "the first variant",
			"The variant with which the report compares the others.",
			func(r *reader, x string) { r.e.Base = x }),
		y.Of("repeats", repeats(), "10",
			"Number of measurements of each variant: see REPEATS.",
			func(r *reader, x Repeats) { r.e.Repeats = x }),
		y.Of("sla", slas(), "none",
			"The latency that is acceptable: see SLA.",
			func(r *reader, x []SLA) { r.e.SLA, r.e.MoreSLAs = &x[0], slices.Clip(x[1:]) }),
		y.Of("search", search(), "none",
			"A search for the highest rate that holds: see SEARCH.",
			func(r *reader, x Search) { r.e.Search = &x }),
		y.Of("sweep", sweep(), "none",
			"Short windows over several noise rates and buffers: see SWEEP.",
			func(r *reader, x Sweep) { r.e.Sweep = &x }),
		y.Of("goals", goals(), "none",
			"Ratios that variants have to reach, fixed before the run: see GOALS.",
			func(r *reader, x []Goal) { r.e.Goals = x }),
		y.Of("power", powerSources(), "not measured",
			"Power sources: see POWER.",
			func(r *reader, x []power.Config) { r.e.Power = x }),
		y.Of("gates", gating(), "none",
			"Conditions that every window must pass. If a window fails one, the run ends with the reason. See "+
				"GATES.",
			func(r *reader, x Gating) { r.e.Gates = &x }),
		y.Of("sizes", sizes(), "the file's numbers everywhere",
			"Other numbers for the lab, `--virtual` and `--quick`: see SIZES.",
			func(r *reader, x Sizes) { r.e.Sizes = &x }),
		y.Of("host-noise", hostNoise(), "1s before and after, reported",
			"Delay that the hosts themselves may add: see HOST NOISE.",
			func(r *reader, x HostNoise) { r.e.HostNoise = x }),
		y.Of("time-limit", y.Duration(time.Second, 30*24*time.Hour), "4h",
			"Time after which the run ends. It keeps what it measured, marked as partial.",
			func(r *reader, x int64) { r.e.TimeLimit = x }),
	}
}

// top reads the whole document.
func (r *reader) top(v y.Value) {
	keys := topKeys()
	if other, ok := otherVersion(v); ok {
		other.Wrong(fmt.Sprintf("%d, the only version that this niclane knows", version))
		return // another version has other keys, so errors about them would be wrong
	}
	if _, ok := y.Section(v, keys, topWant, r); !ok {
		return
	}
	for _, e := range r.Errors() {
		r.broken = append(r.broken, e.Path)
	}
	r.require()
	r.resize()
	r.complete()
	r.check()
	r.leave()
	r.checkTime()
	r.checkQuick()
	r.try()
}

// otherVersion returns the value of version if it is a number other than ours.
func otherVersion(v y.Value) (y.Value, bool) {
	for _, e := range v.Entries() {
		if e.Name != "version" {
			continue
		}
		found, ok := e.Value(e.Name)
		text, _, _ := found.Scalar()
		return found, ok && y.IsDecimal(text) && text != fmt.Sprint(version)
	}
	return y.Value{}, false
}

func versionKey() y.Key[reader] {
	return y.Key[reader]{Name: "version", Want: fmt.Sprint(version), Preset: "required",
		Doc:    "Version of the file format.",
		Schema: y.Schema{"const": version}, Read: readVersion}
}

func readVersion(v y.Value, _ *reader) {
	if text, plain, _ := v.Scalar(); !plain || text != fmt.Sprint(version) {
		v.Wrong(fmt.Sprint(version))
	}
}

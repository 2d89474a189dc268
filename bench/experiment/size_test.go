// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/bench/experiment"
)

const sized = `version: 1
title: in three sizes
lab: {}
server: {kind: memcached, threads: 110}
workload: {protocol: memcached, keys: 500000}
load: {mode: closed, connections: [110, 2200, 4400], generators: 100, window: 30s}
variants:
  - {name: off}
  - {name: tuned, tune: {symmetric-queues: on}}
  - {name: threads, server: {threads: 8, arguments: [-N, $threads]}}
goals: [{variant: threads, base: tuned, percentile: 99, at-most: 1}]
gates: {}
sizes:
  lab: {connections: [44, 440], generators: 1, threads: 2, window: 2s, fifo: 10, warn: [client]}
  quick: {connections: 44, variants: [off, tuned], repeats: 3, keys: 1000}
`

func TestSizes(t *testing.T) {
	read := func(o experiment.Options) *experiment.Experiment {
		t.Helper()
		f, err := experiment.ParseWith("experiment.yaml", []byte(sized), o)
		if err != nil {
			t.Fatal(err)
		}
		return f.Experiment
	}
	names := func(e *experiment.Experiment) (out []string) {
		for _, v := range e.Variants {
			out = append(out, v.Name)
		}
		return out
	}

	e := read(experiment.Options{})
	if diff := cmp.Diff([]int{44, 440}, e.Load.Connections); diff != "" || e.Load.Generators != 1 ||
		e.Server.Threads != 2 || e.Variants[2].Server.Threads != 2 ||
		e.Load.Window != int64(2*time.Second) || e.Placement.Server.FIFO != 10 || e.Placement.Generator.FIFO != 10 ||
		e.Workload.Keys != 500000 || !slices.Equal(e.Gates.Warn, []string{"client"}) || len(e.Variants) != 3 {
		t.Errorf("in the lab: %+v, connections (-want +got)\n%s", e.Load, diff)
	}
	e = read(experiment.Options{Quick: true})
	if !slices.Equal(names(e), []string{"off", "tuned"}) || !slices.Equal(e.Load.Connections, []int{44}) ||
		e.Repeats.Max != 3 || e.Workload.Keys != 1000 || len(e.Goals) != 0 {
		t.Errorf("quick: %v, %v, %+v, goals %v", names(e), e.Load.Connections, e.Repeats, e.Goals)
	}
	if !slices.Equal(e.Sized, []string{"sizes.lab", "sizes.quick"}) {
		t.Errorf("sized %v", e.Sized)
	}
	if e = read(experiment.Options{Scale: 100}); !slices.Equal(e.Load.Connections, []int{4, 44}) {
		t.Errorf("a tenth: %v connections", e.Load.Connections)
	}
	clients := []experiment.Host{{Name: "client1", Agent: "b:1", Address: "10.0.0.2", Generators: 100}}
	e = read(experiment.Options{Hosts: &experiment.Hosts{SUT: experiment.Host{Name: "sut", Agent: "a:1",
		Address: "10.0.0.1", Device: "eth2"}, Clients: clients}})
	if !slices.Equal(e.Load.Connections, []int{110, 2200, 4400}) || e.Server.Threads != 110 ||
		e.Placement.Server.FIFO != 0 || e.Load.Generators != 100 || e.Sized != nil {
		t.Errorf("on hosts: %+v, %d threads", e.Load, e.Server.Threads)
	}
}

// TestVirtualSize: sizes.virtual comes after sizes.lab, and not with --quick. Virtual time has no power.
func TestVirtualSize(t *testing.T) {
	text := strings.Replace(sized, "sizes:\n", "power: {source: rapl}\nsizes:\n"+
		"  virtual: {link-rate: 100gbit, lab-queues: 30, frames: on, window: 50ms, connections: 7}\n", 1)
	for o, want := range map[experiment.Options][]string{
		{}:                           {"sizes.lab"},
		{Virtual: true}:              {"sizes.lab", "sizes.virtual"},
		{Virtual: true, Quick: true}: {"sizes.lab", "sizes.quick"},
	} {
		f, err := experiment.ParseWith("experiment.yaml", []byte(text), o)
		if err != nil {
			t.Fatal(err)
		}
		e, full := f.Experiment, slices.Contains(want, "sizes.virtual")
		if !slices.Equal(e.Sized, want) || (e.Power == nil) != o.Virtual {
			t.Errorf("%+v: sized %v, want %v; power %v", o, e.Sized, want, e.Power)
		}
		if full != (e.Lab.LinkRate == 100e9 && e.Lab.Queues == 30 && e.Lab.Frames && e.Load.Window == 50e6 && e.Load.Connections[0] == 7) {
			t.Errorf("%+v: %+v, %+v", o, e.Lab, e.Load)
		}
	}
}

// TestVariantsOfQuick checks that the variants of sizes.quick replace those of sizes.lab.
func TestVariantsOfQuick(t *testing.T) {
	text := strings.Replace(sized, "lab: {connections", "lab: {variants: [off, tuned, threads], connections", 1)
	f, err := experiment.ParseWith("experiment.yaml", []byte(text), experiment.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Experiment.Variants); n != 2 {
		t.Errorf("%d variants, want the 2 of quick", n)
	}
}

// TestSearchOfASize checks that a size that removes variants also removes their searches.
func TestSearchOfASize(t *testing.T) {
	open := strings.NewReplacer("mode: closed, connections: [110, 2200, 4400], generators: 100",
		"mode: open, rates: 1000, connections: 8",
		"gates: {}\n", "gates: {}\nsla: {percentile: 99, at: 1ms}\nsearch: {max-rate: {from: 1000, to: 4000}, "+
			"variants: [tuned, threads]}\n",
		"connections: [44, 440], generators: 1,", "", "connections: 44, variants: [off, tuned],",
		"variants: LEFT,").Replace(sized)
	for left, want := range map[string][]string{"[off, tuned]": {"tuned"}, "off": nil} {
		f, err := experiment.ParseWith("experiment.yaml", []byte(strings.Replace(open, "LEFT", left, 1)),
			experiment.Options{Quick: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if f.Experiment.Search != nil {
			got = f.Experiment.Search.Variants
		}
		if !slices.Equal(got, want) || f.Experiment.Search.Searches("off") {
			t.Errorf("variants %s: searches %v, want %v", left, got, want)
		}
	}
}

func TestSizesAreChecked(t *testing.T) {
	for _, x := range []struct{ name, old, new, want string }{
		{"no quick form", "  quick:", "  quack:", "sizes.quack: unknown key"},
		{"none at all", sized[strings.Index(sized, "sizes:"):], "", "sizes.quick is missing"},
		{"unknown variant", "variants: [off, tuned]", "variants: [off, tuend]",
			`experiment.yaml:15: sizes.quick.variants: found "tuend", want the name of a variant: off, tuned or threads`},
		{"too long", "repeats: 3", "repeats: 300", "sizes.quick: takes about"},
		{"unknown gate", "warn: [client]", "warn: [cleint]", "sizes.lab.warn"},
		{"bounds of nothing", "repeats: 3", "repeats: 3, max-rate: {from: 1, to: 2}",
			"sizes.quick.max-rate: found without search"},
		{"hits of memcached", "gates: {}", "gates: {hits: 90%}", "gates.hits: found with protocol: memcached"},
		{"tune beside lanes", "tune: {symmetric-queues: on}", "tune: {symmetric-queues: on}, lanes-file: l.yaml",
			"variants[1].tune.symmetric-queues: found beside lanes"},
		{"sysctl outside net", "tune: {symmetric-queues: on}", "tune: {sysctls: {kernel.x: 1}}",
			"variants[1].tune.sysctls"},
		{"kernel TLS of memcached", "arguments: [-N, $threads]", "kernel-tls: on",
			"variants[2].server.kernel-tls: found on with protocol: memcached, want protocol: https"},
		{"kernel TLS that nobody holds", sized[strings.Index(sized, "arguments:"):strings.Index(sized, "sizes:")],
			"kernel-tls: on}}\n", "variants[2].server.kernel-tls: found on without gates, want gates"},
		{"a file that the server has not, in a variant", "arguments: [-N, $threads]", "files: {a.conf: b}",
			`variants[2].server.files."a.conf": found a file that server.files does not have`},
	} {
		t.Run(x.name, func(t *testing.T) {
			text := strings.Replace(sized, x.old, x.new, 1)
			if text == sized {
				t.Fatalf("%q is not in the file", x.old)
			}
			_, err := experiment.ParseWith("experiment.yaml", []byte(text), experiment.Options{Quick: true})
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %s", err, x.want)
			}
		})
	}
}

// exampleHosts returns the hosts of the example file, on which the papers' experiments can run.
func exampleHosts(t *testing.T) *experiment.Hosts {
	t.Helper()
	on, err := experiment.ParseHosts("hosts.example.yaml", readFile(t, hostsExample))
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// labOr returns nil, which stands for the lab, if the experiment text has a lab. Otherwise it
// returns on.
func labOr(text []byte, on *experiment.Hosts) *experiment.Hosts {
	if bytes.Contains(text, []byte("\nlab:")) {
		return nil
	}
	return on
}

// TestPapers parses every experiment of the papers in each of its forms.
func TestPapers(t *testing.T) {
	on := exampleHosts(t)
	for _, name := range experiments(t) {
		text := readFile(t, name)
		forms := []experiment.Options{{Hosts: labOr(text, on)}, {Hosts: on}}
		if labOr(text, on) == nil {
			forms = append(forms, experiment.Options{Virtual: true})
		}
		if strings.Contains(string(text), "\nsizes:") {
			forms = append(forms, experiment.Options{Hosts: labOr(text, on), Quick: true})
		}
		for _, o := range forms {
			if _, err := experiment.ParseWith(filepath.Base(name), text, o); err != nil {
				t.Errorf("quick %v, virtual %v, hosts %v: %v", o.Quick, o.Virtual, o.Hosts != nil, err)
			}
		}
	}
}

// TestTrial makes a trial of every form of each paper's experiment. The trial must have all
// variants, one repeat, and only the highest load.
func TestTrial(t *testing.T) {
	for _, name := range experiments(t) {
		text := readFile(t, name)
		on := labOr(text, exampleHosts(t))
		whole, err := experiment.ParseWith(name, text, experiment.Options{Hosts: on})
		if err != nil {
			t.Fatal(err)
		}
		f, err := experiment.ParseWith(name, text, experiment.Options{Hosts: on, Trial: true})
		if err != nil {
			t.Fatal(err)
		}
		e, w := f.Experiment, whole.Experiment
		if n, most := experiment.Windows(e); n != len(w.Variants) || most != n {
			t.Errorf("%s: %d to %d windows of %d variants", name, n, most, len(w.Variants))
		}
		if e.Load.Window > 1e9 || e.Load.Connections[0] != w.Load.Connections[len(w.Load.Connections)-1] ||
			e.Load.Mode == experiment.Open && e.Load.Rates[0] != w.Load.Rates[len(w.Load.Rates)-1] {
			t.Errorf("%s: %+v", name, e.Load)
		}
		if !e.Trial() || w.Trial() {
			t.Errorf("%s: sized %v and %v", name, e.Sized, w.Sized)
		}
	}
}

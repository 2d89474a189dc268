// SPDX-License-Identifier: Apache-2.0

// Package golden gives the planner's golden cases (lane/plan/testdata) to tests of packages that
// execute plans. It can also change the state with which a case starts, to random settings and
// foreign objects. The package changes no files.
package golden

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Case is a golden case whose lanes the planner does not refuse.
type Case struct {
	Name  string
	State *device.State
	// Lanes is the text of the lanes file. Before, if not empty, is the text of a file that was
	// applied earlier.
	Lanes, Before string
}

// Cases reads the golden cases in dir, without those whose lanes the planner refuses.
func Cases(tb testing.TB, dir string) []Case {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no goldens in %s (%v)", dir, err)
	}
	var out []Case
	for _, path := range paths {
		ar, err := txtar.ParseFile(path)
		must.Do(tb, err)
		files := map[string]string{}
		for _, f := range ar.Files {
			files[f.Name] = string(f.Data)
		}
		if files["plan"] == "" {
			continue
		}
		fixture, _, _ := strings.Cut(string(ar.Comment), ":")
		b, err := os.ReadFile(filepath.Join(dir, fixture+".json"))
		if errors.Is(err, fs.ErrNotExist) { // then it is the recording of a real machine
			b, err = os.ReadFile(filepath.Join(dir, "../../device/testdata", fixture+".json"))
		}
		must.Do(tb, err)
		st, err := state(b, files["device.patch"])
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		out = append(out, Case{
			Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), State: st,
			Lanes: files["lanes.yaml"], Before: files["before.yaml"],
		})
	}
	return out
}

// state decodes a recorded state. If patch is not "", it first merges the patch over it.
func state(fixture []byte, patch string) (*device.State, error) {
	if patch != "" {
		var base, over any
		if err := json.Unmarshal(fixture, &base); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(patch), &over); err != nil {
			return nil, fmt.Errorf("device.patch: %w", err)
		}
		var err error
		if fixture, err = json.Marshal(merge(base, over)); err != nil {
			return nil, err
		}
	}
	st := &device.State{}
	return st, json.Unmarshal(fixture, st)
}

// merge works like merge in the planner's tests: it merges maps by key, and lists of equal length
// by element.
func merge(base, over any) any {
	switch o := over.(type) {
	case map[string]any:
		if b, ok := base.(map[string]any); ok {
			for k, v := range o {
				b[k] = merge(b[k], v)
			}
			return b
		}
	case []any:
		if b, ok := base.([]any); ok && len(b) == len(o) {
			for i := range o {
				b[i] = merge(b[i], o[i])
			}
			return b
		}
	}
	return over
}

// Plan returns the plan for the text of a lanes file and a state.
func Plan(lanes string, st *device.State, owned plan.Owned) (*plan.Plan, error) {
	f, err := config.ParseFile("lanes.yaml", []byte(lanes))
	if err != nil {
		return nil, err
	}
	return plan.Make(f.Intent, st, owned)
}

// Random returns the case with another state. The state depends only on the case and the seed. It
// has settings that are no defaults, and foreign filters, rules and clsact qdiscs. If seed is 0,
// Random returns the case unchanged.
func (c Case) Random(seed uint64) Case {
	if seed == 0 {
		return c
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(c.Name))))
	c.State = c.State.Clone()
	randomFiles(r, c.State)
	for i := range c.State.Devices {
		randomDevice(r, c.State, &c.State.Devices[i])
	}
	c.Name = fmt.Sprintf("%s/seed%d", c.Name, seed)
	return c
}

func randomFiles(r *rand.Rand, st *device.State) {
	paths := make([]string, 0, len(st.Files))
	for p := range st.Files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	cpus := st.OnlineCPUs()
	for _, p := range paths {
		f := st.Files[p]
		switch f.Format {
		case device.FileCPUMask:
			f.Value = device.FormatMask(subset(r, cpus, 0))
		case device.FileCPUList:
			f.Value = device.FormatCPUList(subset(r, cpus, 1))
		}
		st.Files[p] = f
	}
}

// subset returns a random subset of a list. It has at least as many members as least says.
func subset(r *rand.Rand, of []int, least int) []int {
	var out []int
	for _, x := range of {
		if r.IntN(2) == 0 {
			out = append(out, x)
		}
	}
	for len(out) < least {
		out = append(out, of[r.IntN(len(of))])
	}
	return out
}

func randomDevice(r *rand.Rand, st *device.State, d *device.Device) {
	d.RSS = slices.Clone(d.RSS)
	for i := range d.RSS {
		// Make a new list, because State.Clone shares the old one.
		table := make([]int, len(d.RSS[i].Queues))
		for k := range table {
			table[k] = r.IntN(d.RxQueues)
		}
		// If no user has set the table, it stays the driver's.
		if d.RSS[i].Configured = r.IntN(2) == 0; d.RSS[i].Configured {
			d.RSS[i].Queues = table
		}
	}
	for i := range d.NAPIs {
		randomNAPI(r, st, &d.NAPIs[i])
	}
	if d.Coalesce != nil {
		c := *d.Coalesce
		c.RxUsecs, c.TxUsecs = 1+r.IntN(200), 1+r.IntN(200)
		d.Coalesce = &c
	}
	d.QueueCoal = slices.Clone(d.QueueCoal)
	for i := range d.QueueCoal {
		d.QueueCoal[i].RxUsecs = 1 + r.IntN(200)
	}
	if len(d.Qdiscs) > 0 && !slices.ContainsFunc(d.Qdiscs,
		func(q device.QdiscState) bool { return q.Parent == "clsact" }) && r.IntN(2) == 0 {
		d.Qdiscs = append(d.Qdiscs, device.QdiscState{Qdisc: device.Qdisc{Dev: d.Name, Parent: "clsact", Type: "clsact",
			Handle: "ffff:"}})
		d.Filters = append(d.Filters,
			device.FilterState{Filter: device.Filter{Dev: d.Name, Parent: "egress", Pref: uint16(1 + r.IntN(3)),
				Handle: 1, Program: "theirs"}, Type: "bpf", Name: "theirs", ProgramID: 7},
			device.FilterState{Filter: device.Filter{Dev: d.Name, Parent: "ingress", Pref: 5, Handle: 0x80000800},
				Type: "u32"})
	}
	if d.RuleCapacity > 0 && r.IntN(2) == 0 {
		d.Rules = append(d.Rules, device.Rule{Dev: d.Name, Queue: 0,
			Match: device.Match{Family: 4, Protocol: "udp", LocalPort: uint16(40000 + r.IntN(1000))}})
	}
}

func randomNAPI(r *rand.Rand, st *device.State, n *device.NAPI) {
	n.Config.DeferHardIRQs = uint32(r.IntN(100))
	n.Config.GROFlushTimeout = uint64(r.IntN(100_000))
	n.Config.IRQSuspendTimeout = uint64(r.IntN(100_000))
	if n.Config.Queue < 0 || r.IntN(3) > 0 {
		return
	}
	n.Config.Threaded, n.PID = "on", 1000+r.IntN(1000)
	n.Thread = &device.Thread{Dev: n.Config.Dev, Queue: n.Config.Queue, Policy: "other", Nice: r.IntN(10),
		CPUs: subset(r, st.OnlineCPUs(), 1)}
	if r.IntN(2) == 0 {
		n.Thread.Policy, n.Thread.Nice, n.Thread.Priority = "fifo", 0, 1+r.IntN(50)
	}
}

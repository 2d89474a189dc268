// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// threeCards returns the state of the recorded emulated card three times, as lane0 to lane2, and
// a plan of one lanes file for all three.
func threeCards(t *testing.T) (*device.State, *plan.Plan) {
	t.Helper()
	text, err := os.ReadFile("../plan/testdata/emulated.json")
	must.Do(t, err)
	var st *device.State
	for i := range 3 {
		one := new(device.State)
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "lane0", fmt.Sprintf("lane%d", i))),
			one); err != nil {
			t.Fatal(err)
		}
		if st == nil {
			st = one
			continue
		}
		maps.Copy(st.Files, one.Files)
		st.Devices = append(st.Devices, one.Devices...)
	}
	p, err := golden.Plan("version: 1\nglobals: {dev: [lane0, lane1, lane2]}\nlanes: {a: {rank: 1, queues: 2, cpus: "+
		"1, ports: [80], guarantee: 20%}}\n", st, plan.Owned{})
	must.Do(t, err)
	return st, p
}

// TestThirdCardFails: after a failure on the last of three cards, apply must have restored all
// three. After a kill there, rollback must restore all three.
func TestThirdCardFails(t *testing.T) {
	st, p := threeCards(t)
	first := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return strings.Contains(s.Key(), "lane2") })
	// The plan is one transaction: when it begins with lane2, lane0 and lane1 are complete.
	if first < len(p.Steps)/2 {
		t.Fatalf("lane2's first step is number %d of %d", first+1, len(p.Steps))
	}
	for at := first; at < len(p.Steps); at++ {
		for _, kill := range []bool{false, true} {
			k := fakekernel.New(st.Clone())
			before := k.String()
			j := newJournal(p, nil)
			k.Inject(fakekernel.Fault{Write: at, When: fakekernel.Before, Err: errInjected, Kill: kill})
			if kill {
				if !killable(func() { _, _ = apply.Run(context.Background(), k, p, j, apply.Options{}) }) {
					t.Fatalf("write %d: not killed", at)
				}
				k.Calm()
				if _, err := apply.Rollback(context.Background(), k, reread(t, j), here, apply.Options{}); err != nil {
					t.Errorf("write %d: rollback after a kill: %v", at, err)
				}
			} else if _, err := apply.Run(context.Background(), k, p, j, apply.Options{}); !errors.Is(err,
				errInjected) {
				t.Errorf("write %d: got %v, want what was injected", at, err)
			}
			wantState(t, fmt.Sprintf("write %d, kill %v", at, kill), before, k)
		}
	}
}

// A failing kernel refuses the nth write to one device.
type failing struct {
	*apply.System
	dev  string
	n    int
	done map[string]bool // devices written before
}

func (f *failing) Write(old, next device.Object) error {
	o := next
	if o == nil {
		o = old
	}
	if strings.Contains(o.Key(), f.dev) {
		if f.n--; f.n == 0 {
			return errInjected
		}
	} else {
		_, rest, _ := strings.Cut(strings.TrimPrefix(o.Key(), "file/sys/class/net"), "/")
		dev, _, _ := strings.Cut(rest, "/")
		f.done[dev] = true
	}
	return f.System.Write(old, next)
}

// TestSystemThirdCardFails is TestThirdCardFails with three veths in the kernel. The last write
// to the third one fails.
func TestSystemThirdCardFails(t *testing.T) {
	const lanes = "version: 1\nglobals: {dev: [v0, w0, x0], link-rate: 1gbit, force: {queue-set: shared}}\nlanes: " +
		"{a: {queues: 1, ports: [80], guarantee: 20%}}\n"
	vethtest.Run(t, testQueues, func(t *testing.T) {
		vethtest.OwnMounts(t)
		mountSysfs(t)
		for _, name := range []string{"w", "x"} {
			command(t, fmt.Sprintf("ip link add %[1]s0 numrxqueues %[2]d numtxqueues %[2]d type veth peer name "+
				"%[1]s1 numrxqueues %[2]d numtxqueues %[2]d", name, testQueues))
			command(t, fmt.Sprintf("ip link set %s0 up", name))
			command(t, fmt.Sprintf("ip link set %s1 up", name))
		}
		st := lanetest.Observe(t, "v0", "w0", "x0")
		p, err := golden.Plan(lanes, st, plan.Owned{})
		must.Do(t, err)
		writes := 0
		for _, s := range p.Steps {
			if strings.Contains(s.Key(), "x0") {
				writes++
			}
		}
		if diff := cmp.Diff([]string{"v0", "w0", "x0"}, p.Devices); diff != "" || writes < 5 {
			t.Fatalf("%d steps on x0; devices (-want +got):\n%s", writes, diff)
		}
		k := openKernel(t)
		defer k.Close()
		k.Prepare(p.Steps)
		f := &failing{System: k, dev: "x0", n: writes, done: map[string]bool{}}
		j := memoryJournal(t, journal.Head{Config: testConfig, Generation: 1, Devices: p.Devices, Plan: p})
		report, err := apply.Run(context.Background(), f, p, j, apply.Options{})
		if !errors.Is(err, errInjected) || len(report.Left) > 0 || !f.done["v0"] || !f.done["w0"] {
			t.Errorf("error %v, left %v, written before %v", err, report.Left, f.done)
		}
		before, after := st.Objects(), lanetest.Observe(t, "v0", "w0", "x0").Objects()
		for key := range after {
			if _, ok := before[key]; !ok {
				t.Errorf("%s is left", key)
			}
		}
		for key, want := range before {
			if got := after[key]; !device.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", key, got, want)
			}
		}
	})
}

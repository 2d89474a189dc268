// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

const kernelLanes = `
version: 1
globals:
  dev: v0
  queues: 2
lanes:
  redis:
    rank: 1
    queues: 2
    ports: [6379]
`

func look(t *testing.T) *device.State {
	t.Helper()
	st, err := observe.Observe(context.Background(), observe.Options{Devices: []string{"v0"}, NoProbes: true})
	must.Do(t, err)
	return st
}

// onLane runs f on a veth with an emulated card, on which lanes are applied.
func onLane(t *testing.T, f func(t *testing.T, k *apply.System, a verify.Applied)) {
	t.Helper()
	vethtest.Run(t, 8, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: 8, Rules: 64, Contexts: 8, LinkRate: 1e9})
		if out, err := exec.Command("ethtool", "-K", "v0", "gro", "on").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		k, err := apply.NewKernel("")
		must.Do(t, err)
		defer k.Close()
		j := lanetest.Apply(t, k, kernelLanes, lanetest.Observe(t, "v0"))
		a := verify.Applied{Config: "lanes.yaml", Lanes: j.Head().Plan.Lanes, Ended: j.Ended(), State: look(t)}
		for _, r := range j.Records() {
			a.Owned = append(a.Owned, r.Record)
		}
		if fs := drifts(verify.State(a, look(t))); len(fs) > 0 {
			t.Fatalf("right after apply: %+v", fs)
		}
		f(t, k, a)
	})
}

func drifts(fs []verify.Finding) []verify.Finding {
	return slices.DeleteFunc(fs, func(f verify.Finding) bool { return f.Severity == verify.OK })
}

// TestKernelObjects changes, removes and adds objects of the card and of maps in the running
// kernel. verify must find each change, and nothing else.
func TestKernelObjects(t *testing.T) {
	onLane(t, func(t *testing.T, k *apply.System, a verify.Applied) {
		filter := device.Filter{Dev: "v0", Parent: "egress", Pref: 1, Handle: 0x6e6c, Program: plan.EgressProgram}
		entry := device.FilterEntry{Filter: filter.Key(),
			Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 6379}}
		rule := device.Rule{Dev: "v0", Match: entry.Match}
		table := device.RSSTable{Dev: "v0"}
		for _, c := range []struct {
			name   string
			object device.Object
			// change returns the value to write; nil means to remove the object.
			change func(now device.Object) device.Object
			want   string
		}{
			{"entry of the lane in another class", entry, func(now device.Object) device.Object {
				e := now.(device.FilterEntry)
				e.Priority = "1:2"
				return e
			}, "lane redis: on transmit packets of tcp4,port=6379 leave in class 1:2 (lane default)"},
			{"entry of nobody's", device.FilterEntry{Filter: filter.Key(),
				Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 1}}, func(device.Object) device.Object {
				return device.FilterEntry{Filter: filter.Key(),
					Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 1}, Priority: "1:10"}
			}, "lane redis: packets of udp4,port=1 leave as the lane's, and no lane asks for them"},
			{"rule removed", rule, func(device.Object) device.Object { return nil },
				"lane redis: packets of tcp4,port=6379 arrive as default traffic, in the default lane's queues"},
			{"rule to the default", rule, func(now device.Object) device.Object {
				r := now.(device.Rule)
				r.Context, r.Queue = 0, 1
				return r
			}, "lane redis: packets of tcp4,port=6379 arrive in the queues of lane default"},
			{"rule of somebody's", device.Rule{Dev: "v0",
				Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53}}, func(device.Object) device.Object {
				return device.Rule{Dev: "v0", Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53}, Queue: 3}
			}, "lane redis: packets of udp4,port=53 arrive in the lane's queues and are not the lane's"},
			{"default table", table, func(now device.Object) device.Object {
				x := now.(device.RSSTable)
				x.Queues = slices.Clone(x.Queues)
				x.Queues[5] = 2
				return x
			}, "lane default: packets that no rule matches also arrive in queues 2 (lane redis)"},
			{"another context", device.RSSTable{Dev: "v0", Context: 5}, func(device.Object) device.Object {
				return device.RSSTable{Dev: "v0", Context: 5, Queues: slices.Repeat([]int{3}, emucard.TableSize)}
			}, "lane redis: packets that rules of another program send to context 5 arrive in queues 3 of the lane"},
		} {
			now, err := k.Read(c.object)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			drifted := c.change(now)
			if err := k.Write(now, drifted); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			fs := drifts(verify.State(a, look(t)))
			if len(fs) != 1 || fs[0].Severity != verify.Drift || fs[0].Key != c.object.Key() ||
				"lane "+fs[0].Lane+": "+fs[0].Meaning != c.want {
				t.Errorf("%s: got %+v\nwant %s", c.name, fs, c.want)
			}
			if err := k.Write(drifted, now); err != nil {
				t.Fatalf("%s: undo: %v", c.name, err)
			}
		}
		if fs := drifts(verify.State(a, look(t))); len(fs) > 0 {
			t.Errorf("all put back: %+v", fs)
		}
	})
}

// TestKernelPrograms attaches filters of another program that run before niclane's.
func TestKernelPrograms(t *testing.T) {
	onLane(t, func(t *testing.T, _ *apply.System, a verify.Applied) {
		pass := func(typ ebpf.ProgramType, ret int32) *ebpf.Program {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "theirs", Type: typ, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, ret), asm.Return()}})
			must.Do(t, err)
			t.Cleanup(func() { p.Close() })
			return p
		}
		index := look(t).Device("v0").Index

		tcc, err := tc.Open()
		must.Do(t, err)
		defer tcc.Close()
		// Of two filters with the same preference, the newer one runs first.
		theirs := device.Filter{Dev: "v0", Parent: "egress", Pref: 1, Handle: 7}
		must.Do(t, tcc.AddBPF(theirs, pass(ebpf.SchedCLS, 0).FD()))
		wantOne(t, a, "filter/v0/egress/1/7", "never reach niclane's classifier")
		must.Do(t, tcc.DeleteBPF(theirs))

		xdp, err := link.AttachXDP(link.XDPOptions{Program: pass(ebpf.XDP, 2), Interface: index})
		must.Do(t, err)
		wantOne(t, a, "program/v0/xdp/theirs", "it runs before everything else")
		must.Do(t, xdp.Close())

		tcx, err := link.AttachTCX(link.TCXOptions{Program: pass(ebpf.SchedCLS, 0), Attach: ebpf.AttachTCXEgress,
			Interface: index})
		if err != nil {
			t.Skipf("TCX: %v (Linux 6.6)", err)
		}
		wantOne(t, a, "program/v0/tcx-egress/theirs", "it runs before niclane's classifier")
		must.Do(t, tcx.Close())
		if fs := drifts(verify.State(a, look(t))); len(fs) > 0 {
			t.Errorf("all gone again: %+v", fs)
		}
	})
}

func wantOne(t *testing.T, a verify.Applied, key, meaning string) {
	t.Helper()
	fs := drifts(verify.State(a, look(t)))
	if len(fs) != 1 || fs[0].Severity != verify.Drift || fs[0].Key != key || !strings.Contains(fs[0].Meaning, meaning) {
		t.Errorf("want one drift %s, %q; got %s", key, meaning, fmt.Sprintf("%+v", fs))
	}
}

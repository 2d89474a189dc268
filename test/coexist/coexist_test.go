// SPDX-License-Identifier: Apache-2.0

// Package coexist tests that eBPF programs of other owners continue to work while a lane is made
// and removed. Each of them must see every packet on the device before, during and after.
package coexist

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// A neighbour is a program of another owner on the device.
type neighbour struct {
	name string
	// move attaches the program to the device, in the host's network namespace. seen returns the
	// number of packets that the program has seen since then. seen is nil if this kernel or host
	// cannot have the neighbour.
	move func(t *testing.T) (seen func() (in, out uint64))
	// queueSet and classifier are the mechanisms that the planner must choose if the neighbour is
	// there. reason is the reason that it must give.
	queueSet, classifier, reason string
	// without is the classifier that it must choose on kernels without TCX (before 6.6); "" if it must
	// refuse.
	without string
	// slot is the program that must be in the XDP slot; "": any. allowed returns an error if the
	// kernel does not allow it.
	slot    string
	allowed func() error
}

func neighbours() []neighbour {
	return []neighbour{
		{name: "none", move: func(*testing.T) func() (uint64, uint64) { return nil },
			queueSet: plan.ByCpumapGeneric, classifier: plan.ByClsactBPF, without: plan.ByClsactBPF},
		{name: "a bare XDP program", move: bareXDP, reason: "their_xdp", slot: "their_xdp",
			queueSet: plan.ByRPS, classifier: plan.ByClsactBPF, without: plan.ByClsactBPF},
		{name: "a program behind libxdp's dispatcher", move: dispatcher, reason: "xdp_dispatcher",
			slot: "xdp_dispatcher", allowed: extensions,
			queueSet: plan.ByRPS, classifier: plan.ByClsactBPF, without: plan.ByClsactBPF},
		{name: "filters at clsact that end classification", move: clsact, reason: "cil_to_netdev",
			queueSet: plan.ByCpumapGeneric, classifier: plan.ByTCX},
		{name: "a program at TCX that ends classification", move: tcx, reason: "their_tcx",
			queueSet: plan.ByCpumapGeneric, classifier: plan.ByTCX, without: plan.ByClsactBPF},
	}
}

const lanes = `
version: 1
globals:
  dev: lane0
  link-rate: 500mbit
lanes:
  echo:
    rank: 1
    guarantee: 20%
    queues: 2
    cpus: 1
    protocol: udp
    ports: [7]
`

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

func TestNeighbours(t *testing.T) {
	vethtest.NeedRoot(t)
	for _, n := range neighbours() {
		t.Run(n.name, func(t *testing.T) {
			cfg := lab.Config{Name: fmt.Sprintf("coexist-%d", os.Getpid()), Card: lab.CardNone}
			l := labtest.Up(t, cfg)
			traffic := labtest.StartTraffic(t, l)
			defer traffic.End()
			var slot string
			labtest.OnHost(t, l, lab.SUT, func(t *testing.T) { slot = beside(t, n, traffic) })
			if n.slot != "" && !t.Failed() {
				t.Run("slot", func(t *testing.T) { inSlot(t, n, slot) })
			}
		})
	}
}

// inSlot checks that the right program is in the XDP slot.
func inSlot(t *testing.T, n neighbour, slot string) {
	if slot == n.slot {
		return
	}
	if n.allowed != nil {
		if err := n.allowed(); err != nil {
			t.Skipf("%s is in the slot, not %s: %v", slot, n.slot, err)
		}
	}
	t.Errorf("%q is in the slot, want %s", slot, n.slot)
}

// beside makes a lane while the neighbour is attached, and rolls it back. It returns the program
// that was in the XDP slot while the lane existed.
func beside(t *testing.T, n neighbour, traffic *labtest.Traffic) (slot string) {
	seen := n.move(t)
	all := func(when string) {
		t.Helper()
		traffic.Exchange(t, 50)
		if seen == nil {
			return
		}
		in, out := seen()
		if want := traffic.Answered.Load(); in != 0 && in < want || out != 0 && out < want || in+out == 0 {
			t.Errorf("%s: it has seen %d packets in and %d out, of %d each", when, in, out, want)
		}
	}
	traffic.Reset()
	all("before")
	programs := attached(t)
	p, st, err := planHere(t)
	x, _ := st.Devices[0].XDP()
	reason, classifier := n.reason, n.classifier
	switch {
	case seen == nil:
		reason = ""
	case n.allowed != nil:
		reason = x.Program // inSlot checks the program in the XDP slot
	}
	if f := st.Capabilities.Find(device.CapTCX); f.Answer != device.Yes {
		t.Logf("no TCX: %s", f.Why)
		if classifier = n.without; classifier == "" {
			refuses(t, err, reason)
			all("after the plan was refused")
			return x.Program
		}
	}
	must.Do(t, err)
	for part, want := range map[device.Part]string{device.PartQueueSet: n.queueSet, device.PartClassifier: classifier} {
		i := slices.IndexFunc(p.Choices, func(c plan.Choice) bool { return c.Part == part })
		if got := p.Choices[i].Mechanism; got != want {
			t.Errorf("%s is %s, want %s", part, got, want)
		}
	}
	if text := fmt.Sprint(p.Choices, p.Notes); !strings.Contains(text, reason) {
		t.Errorf("the plan does not name %s: %s", reason, text)
	}
	k, err := apply.NewKernel("")
	must.Do(t, err)
	defer k.Close()
	j := journal.New(journal.Head{Config: "/test", Generation: 1, Devices: p.Devices, Plan: p})
	step := func(e apply.Event) { all("at " + e.Key) }
	if _, err := apply.Run(t.Context(), k, p, j, apply.Options{Progress: step}); err != nil {
		t.Fatal(err)
	}
	all("with the lane")
	inLane(t, p, traffic)
	if got := attached(t); !contains(got, programs) {
		t.Errorf("programs with the lane %v, before %v", got, programs)
	}
	if _, err := apply.Undo(k, j, apply.Options{Progress: step}); err != nil {
		t.Fatal(err)
	}
	all("after the lane")
	if got := attached(t); !slices.Equal(got, programs) {
		t.Errorf("programs after the lane %v, before %v", got, programs)
	}
	return x.Program
}

// refuses checks that the planner refused because of the neighbour and because the kernel has no
// TCX. The error must name the neighbour.
func refuses(t *testing.T, err error, neighbour string) {
	t.Helper()
	if err == nil {
		t.Fatalf("a plan although nothing can see a packet before %s does", neighbour)
	}
	for _, want := range []string{neighbour, plan.ByTCX + " (not supported"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not name %q: %v", want, err)
		}
	}
}

// inLane checks that the lane works beside the neighbour. The lane must have sent the answers. If niclane's XDP program is attached, it must have moved the requests.
func inLane(t *testing.T, p *plan.Plan, traffic *labtest.Traffic) {
	t.Helper()
	answers := lanePackets(t, p.Lanes[1])
	questions, _ := lanetest.XDPPackets(t, lab.Port)
	traffic.Exchange(t, 100)
	if got := lanePackets(t, p.Lanes[1]) - answers; got < 100 {
		t.Errorf("the lane carried %d of 100 answers", got)
	}
	cpumap := slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Object().Kind() == (device.XDP{}).Kind() })
	if moved, _ := lanetest.XDPPackets(t, lab.Port); cpumap && moved-questions < 100 {
		t.Errorf("the XDP program moved %d of 100 questions", moved-questions)
	}
}

// planHere plans the lanes for the namespace of the calling thread. It returns the planner's error.
func planHere(t *testing.T) (*plan.Plan, *device.State, error) {
	t.Helper()
	f, err := config.ParseFile("lanes.yaml", []byte(lanes))
	must.Do(t, err)
	st := lanetest.Observe(t, lab.Port)
	p, err := plan.Make(f.Intent, st, plan.Owned{})
	return p, st, err
}

// attached returns the programs on the device, in the order in which they run.
func attached(t *testing.T) []string {
	t.Helper()
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{lab.Port}, NoProbes: true})
	must.Do(t, err)
	var out []string
	for _, p := range st.Devices[0].Programs {
		out = append(out, fmt.Sprintf("%s %d %s", p.Attach, p.ID, p.Name))
	}
	for _, f := range st.Devices[0].Filters {
		out = append(out, fmt.Sprintf("%s %d %#x %s %d %s", f.Parent, f.Pref, f.Handle, f.Type, f.ProgramID, f.Name))
	}
	return out
}

// contains reports whether got contains the elements of want, in that order.
func contains(got, want []string) bool {
	i := 0
	for _, g := range got {
		if i < len(want) && g == want[i] {
			i++
		}
	}
	return i == len(want)
}

// lanePackets returns how many packets the lane has sent: by its class, or as the classifier counts
// them, if the lanes share the link by departure times.
func lanePackets(t *testing.T, l plan.FittedLane) (packets int) {
	t.Helper()
	if !l.Departs {
		return classPackets(t, l.Class)
	}
	c, err := tc.Open()
	must.Do(t, err)
	defer c.Close()
	b := bpf.New(c)
	defer b.Close()
	sent, err := b.SentCounters(lab.Port, []int{l.Context})
	must.Do(t, err)
	for _, n := range sent {
		packets += int(n.Packets)
	}
	return packets
}

func classPackets(t *testing.T, class string) (packets int) {
	t.Helper()
	lines := strings.Split(vethtest.Command(t, "tc -s class show dev "+lab.Port), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "class htb "+class+" ") {
			var bytes int
			if _, err := fmt.Sscanf(strings.TrimSpace(lines[i+1]), "Sent %d bytes %d pkt", &bytes,
				&packets); err != nil {
				t.Fatalf("%q: %v", lines[i+1], err)
			}
			return packets
		}
	}
	t.Fatalf("no class %s", class)
	return 0
}

// counter returns the value in a map that has one counter.
func counter(t *testing.T, m *ebpf.Map) uint64 {
	t.Helper()
	var n uint64
	must.Do(t, m.Lookup(uint32(0), &n))
	return n
}

// mountBPF mounts a BPF file system at /sys/fs/bpf that only this thread uses.
func mountBPF(t *testing.T) {
	t.Helper()
	must.Do(t, unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, ""))
}

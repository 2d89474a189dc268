// SPDX-License-Identifier: Apache-2.0

package card

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A paper is a card that is on paper: plans are made of it by being believed.
type paper struct {
	state   *device.State
	records []journal.Record
}

func (p *paper) plan(f *policy.File) (*plan.Plan, error) {
	var owned plan.Owned
	for _, r := range p.records {
		owned.Records = append(owned.Records, plan.OwnedRecord{Original: r.Original, Last: r.Last, Part: r.Part, Cause: r.Cause})
	}
	return plan.Make(f.Intent, p.state, owned)
}

func (p *paper) make(t *testing.T, of *plan.Plan) {
	t.Helper()
	var changes []device.Change
	j := journal.New(journal.Head{Before: p.records, Plan: of})
	for i, s := range of.Steps {
		changes = append(changes, device.Change{Old: s.Old, New: s.New})
		if err := j.Begin(i); err != nil {
			t.Fatal(err)
		}
		if err := j.Done(i); err != nil {
			t.Fatal(err)
		}
	}
	p.state, p.records = p.state.After(changes), j.Records()
}

// sorted has steps in an order that does not depend on which others there are.
func sorted(p *plan.Plan) *plan.Plan {
	out := *p
	out.Steps = slices.Clone(p.Steps)
	slices.SortFunc(out.Steps, func(a, b plan.Step) int { return strings.Compare(a.Key(), b.Key()) })
	for i := range out.Steps {
		if out.Steps[i].New == nil {
			out.Steps[i].Cause = "" // its place in the list as it was written, or as it is now
		}
	}
	return &out
}

// devices are the machines of package plan's goldens, by name.
func devices(t *testing.T) map[string]*device.State {
	t.Helper()
	out := map[string]*device.State{}
	for _, dir := range []string{"../../../lane/plan/testdata", "../../../lane/device/testdata"} {
		paths, err := filepath.Glob(dir + "/*.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			st := new(device.State)
			if err := json.Unmarshal(b, st); err != nil {
				t.Fatal(path, err)
			}
			out[strings.TrimSuffix(filepath.Base(path), ".json")] = st
		}
	}
	return out
}

// pods come and go at random on a node's lanes, as more sorts of members than pods are.
type comings struct {
	*rand.Rand
	next int
	all  []*policy.Member
	free []byte // last bytes of addresses
}

func (c *comings) member() *policy.Member {
	c.next++
	n := c.free[0]
	c.free = c.free[1:]
	four := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, 0, n}), 32)
	six := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: n}), 128)
	m := &policy.Member{
		Name: fmt.Sprint("pod-", c.next), Lane: []string{"web", "redis-0", "redis-1"}[c.IntN(3)], Protocol: "tcp",
		Ports: []string{"80"}, Addrs: []netip.Prefix{four, six},
	}
	switch c.IntN(12) {
	case 0:
		m.Protocol = "udp"
	case 1:
		m.Ports = []string{"80", "443"}
	case 2:
		m.Ports = nil
	case 3:
		m.Addrs = m.Addrs[:1]
	case 4:
		m.RemoteAddrs = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.0/%d", 24+c.IntN(8)))}
		m.Addrs = m.Addrs[:1]
	case 5:
		m.RemotePorts = []string{"5000"}
	}
	return m
}

func (c *comings) change() {
	for range 1 + c.IntN(3) {
		if len(c.all) > 0 && (c.IntN(2) == 0 || len(c.free) == 0) {
			i := c.IntN(len(c.all))
			c.free = append(c.free, c.all[i].Addrs[0].Addr().As4()[3])
			c.all = slices.Delete(c.all, i, i+1)
			continue
		}
		c.all = append(c.all, c.member())
	}
}

// TestSettled: what is planned of those members that differ is what is planned of all, on
// every device that there is a record of; where it may not be, all are planned.
func TestSettled(t *testing.T) {
	alone := map[string]int{}
	for name, st := range devices(t) {
		for _, uplink := range []v1alpha1.Uplink{{}, {Force: map[string]string{"queue-set": "shared"}}} {
			for _, shape := range []string{"", "10%"} {
				for _, capacity := range []int{0, 12} {
					for seed := range uint64(2) {
						t.Run(fmt.Sprintf("%s/%v/guarantee=%s/rules=%d/%d", name, uplink.Force, shape, capacity, seed), func(t *testing.T) {
							alone[name] += comeAndGo(t, st, uplink, shape, capacity, seed)
						})
					}
				}
			}
		}
	}
	for _, name := range []string{"veth-6.18", "virtio-6.12", "emulated", "simcard-contexts", "simcard-ice"} {
		if alone[name] < 100 {
			t.Errorf("%s: members were planned alone %d times", name, alone[name])
		}
	}
}

func comeAndGo(t *testing.T, st *device.State, uplink v1alpha1.Uplink, shape string, capacity int, seed uint64) (alone int) {
	for _, d := range st.Devices {
		if d.Type == "loopback" || d.TxQueues < 4 {
			continue
		}
		before := *st
		before.Devices = slices.Clone(st.Devices)
		before.Device(d.Name).RuleCapacity = capacity
		uplink.Dev, uplink.LinkRate, uplink.Queues = d.Name, "10gbit", 1
		spec := &v1alpha1.LanePolicySpec{Uplink: uplink, Classes: []v1alpha1.Class{
			{Name: "web", Mode: v1alpha1.Shared, Queues: 1, Members: 50, Tuning: v1alpha1.Tuning{Guarantee: shape}},
			{Name: "redis", Queues: 1, Sets: 2, Tuning: v1alpha1.Tuning{Guarantee: shape}},
		}}
		c := &comings{Rand: rand.New(rand.NewPCG(seed, 0))}
		for n := range byte(30) {
			c.free = append(c.free, n+1)
		}
		card, maker := &paper{state: &before}, policy.Maker{}
		var s *settled
		for range 50 {
			was, free, old := slices.Clone(c.all), slices.Clone(c.free), spec.Classes[0]
			c.change()
			policyChanges, replaced := c.IntN(15) == 0, false
			if policyChanges {
				if shape != "" && c.IntN(2) == 0 {
					spec.Classes[0].Guarantee = []string{"10%", "20%"}[c.IntN(2)]
				} else {
					spec.Classes[0].Aligned = !old.Aligned
				}
			} else if c.IntN(10) == 0 && len(was) > 0 && slices.Contains(c.all, was[0]) {
				again := *was[0] // another pod with what the one had
				if again.Addrs = slices.Clone(again.Addrs); len(again.Addrs) > 1 {
					again.Addrs[1] = netip.MustParsePrefix("fd01::1/128")
				}
				replaced, c.all[slices.Index(c.all, was[0])] = true, &again
			}
			f, err := maker.Make("lanes.yaml", spec, policy.Node{Members: c.all})
			if err != nil {
				t.Fatal(err)
			}
			all, err := card.plan(f)
			var some *some
			if s != nil {
				some = s.plan(f)
			}
			if err != nil {
				if some != nil {
					t.Fatalf("planned alone where all cannot be: %v", err)
				}
				if c.all, c.free, spec.Classes[0] = was, free, old; s == nil && len(was) == 0 {
					return alone // no lanes for this device
				}
				s = nil // as of a card on which something was tried
				continue
			}
			card.make(t, all)
			full := capacity > 0 && len(card.state.Device(d.Name).Rules) == capacity
			if some == nil && s != nil && len(s.made) > 0 && !policyChanges && !replaced && !full && s.beside(all) && !compareAnew(all, s) {
				t.Fatal("planned together, and could be planned alone")
			}
			if some != nil {
				alone++
				if a, b := sorted(all), sorted(some.Plan); !reflect.DeepEqual(a, b) {
					t.Fatalf("-all +those that differ\n%s", cmp.Diff(a, b))
				}
				s.take(some)
			} else {
				s = settle(f, card.state, card.records)
			}
			if s == nil {
				continue
			}
			now := s.state()
			for i := range now.Devices {
				for _, d := range []*device.Device{&now.Devices[i], card.state.Device(now.Devices[i].Name)} {
					slices.SortFunc(d.Entries, byKey)
					slices.SortFunc(d.Rules, byKey)
					slices.SortFunc(d.XDPEntries, byKey)
					slices.SortFunc(d.Flowers, byKey)
				}
			}
			if !reflect.DeepEqual(card.state, now) {
				t.Fatalf("-is +known\n%s", cmp.Diff(card.state, now))
			}
		}
	}
	return alone
}

// compareAnew reports whether a plan has members that compare what none did before, or
// none that compare anything.
func compareAnew(p *plan.Plan, s *settled) bool {
	for _, step := range p.Steps {
		if m, _, ok := compared(step.Object()); ok && step.New != nil && !s.patterns[plan.PatternOf(m)] {
			return true
		}
	}
	return len(p.Steps) == 0
}

// TestUnsettled: members are not planned alone where the card is not known to have what
// the file asks for, and no more; nor where what one has depends on the others.
func TestUnsettled(t *testing.T) {
	for name, c := range map[string]struct {
		device string
		uplink v1alpha1.Uplink
		group  bool // one for each member
		change func(*paper)
		known  bool
	}{
		"as planned": {device: "veth-6.18", known: true},
		"a record that is not certain": {device: "veth-6.18", change: func(p *paper) {
			p.records[len(p.records)-1].Uncertain = true
		}},
		"somebody else's entry before": {device: "veth-6.18", change: func(p *paper) {
			last := &p.records[len(p.records)-1]
			last.Original = last.Last
		}},
		"an entry for nobody": {device: "veth-6.18", change: func(p *paper) {
			o := p.records[len(p.records)-1]
			e := o.Last.(device.FilterEntry)
			e.Match.LocalPort = 81
			o.Last = e
			p.records = append(p.records, journal.Record{Last: e, Part: o.Part, Cause: o.Cause})
		}},
		"an entry that is not as wanted": {device: "veth-6.18", change: func(p *paper) {
			last := &p.records[len(p.records)-1]
			e := last.Last.(device.FilterEntry)
			e.Priority = "1:77"
			last.Last = e
		}},
		"a record of what is not there": {device: "veth-6.18", change: func(p *paper) {
			p.records = append(p.records, journal.Record{Last: device.Qdisc{Dev: p.state.Devices[0].Name, Parent: "1:9", Type: "fq", Handle: "9:"}})
		}},
		"control groups": {device: "emulated", uplink: v1alpha1.Uplink{Force: map[string]string{"classifier": plan.RealSockops}}, group: true},
		"a qdisc that is not there": {device: "veth-6.18", change: func(p *paper) {
			i := slices.IndexFunc(p.records, func(r journal.Record) bool { _, is := r.Last.(device.Qdisc); return is })
			p.state = p.state.After([]device.Change{{Old: p.records[i].Last}})
		}},
		"rules that take queues in turn": {device: "simcard-contexts", uplink: v1alpha1.Uplink{Force: map[string]string{"queue-set": plan.RealSingleQueue}}},
	} {
		t.Run(name, func(t *testing.T) {
			st := devices(t)[c.device]
			c.uplink.Dev, c.uplink.LinkRate, c.uplink.Queues = "sim0", "10gbit", 1
			if i := slices.IndexFunc(st.Devices, func(d device.Device) bool { return d.Type != "loopback" && d.TxQueues > 3 }); i >= 0 {
				c.uplink.Dev = st.Devices[i].Name
			}
			spec := shared()
			spec.Uplink = c.uplink
			var maker policy.Maker
			pods := []*policy.Member{memberOf(1), memberOf(2)}
			if c.group {
				st.Capabilities[device.CapSockops] = device.Finding{Answer: device.Yes}
				st.Cgroups.V2, st.Cgroups.V2Groups = "/sys/fs/cgroup/unified", map[string]bool{}
				for _, m := range pods {
					m.Cgroup = "/" + m.Name
					st.Cgroups.Groups[m.Cgroup], st.Cgroups.V2Groups[m.Cgroup] = true, true
					file := st.Cgroups.CpusetDir(m.Cgroup) + "/cpuset.cpus"
					st.Files[file] = device.File{Path: file, Format: device.FileCPUList}
				}
			}
			f, err := maker.Make("lanes.yaml", spec, policy.Node{Members: pods})
			if err != nil {
				t.Fatal(err)
			}
			card := &paper{state: st}
			p, err := card.plan(f)
			if err != nil {
				t.Fatal(err)
			}
			card.make(t, p)
			if c.change != nil {
				c.change(card)
			}
			s := settle(f, card.state, card.records)
			if (s != nil) != c.known {
				t.Fatalf("settled: %t", s != nil)
			}
			if s == nil {
				return
			}
			if f, err = maker.Make("lanes.yaml", spec, policy.Node{Members: pods[:1]}); err != nil {
				t.Fatal(err)
			}
			if s.plan(f) == nil {
				t.Error("planned together")
			}
			s.base = s.base.Clone()
			s.base.Device(c.uplink.Dev).Emulated = true
			if s.plan(f) != nil {
				t.Error("planned alone on a device that is another since")
			}
		})
	}
}

// TestPatterns: members are not planned alone that compare more different things than can
// be told apart, also where none of them is steered.
func TestPatterns(t *testing.T) {
	for _, shape := range []string{"", "10%"} {
		st := devices(t)["veth-6.18"]
		spec := shared()
		i := slices.IndexFunc(st.Devices, func(d device.Device) bool { return d.TxQueues > 3 })
		spec.Uplink.Dev = st.Devices[i].Name
		spec.Classes[0].Tuning = v1alpha1.Tuning{Guarantee: shape}
		if shape == "" { // one queue for all, and nothing is shaped: nobody looks at packets
			st.Devices[i].TxQueues, st.Devices[i].RxQueues, st.Devices[i].Channels = 1, 1, nil
		}
		var maker policy.Maker
		var pods []*policy.Member
		for n := range 17 {
			m := memberOf(n + 1)
			m.RemoteAddrs = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr("128.0.0.0"), 8+n)}
			pods = append(pods, m)
		}
		f, err := maker.Make("lanes.yaml", spec, policy.Node{Members: pods[:16]})
		if err != nil {
			t.Fatal(err)
		}
		card := &paper{state: st}
		p, err := card.plan(f)
		if err != nil {
			t.Fatal(err)
		}
		card.make(t, p)
		s := settle(f, card.state, card.records)
		if s == nil || (len(s.made) == 0) != (shape == "") {
			t.Fatalf("shape %q: settled: %+v", shape, s)
		}
		if f, err = maker.Make("lanes.yaml", spec, policy.Node{Members: pods}); err != nil {
			t.Fatal(err)
		}
		if _, err := card.plan(f); err == nil || s.plan(f) != nil {
			t.Errorf("shape %q: all planned: %v; alone: %t", shape, err, s.plan(f) != nil)
		}
	}
}

func byKey[T device.Object](a, b T) int { return strings.Compare(a.Key(), b.Key()) }

// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/internal/testing/fakekernel/mutate"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// applied applies a golden plan and returns the state after that, and the content of the journal.
func applied(t *testing.T, c golden.Case) (verify.Applied, *device.State, *plan.Plan) {
	t.Helper()
	p, err := golden.Plan(c.Lanes, c.State, plan.Owned{})
	must.Do(t, err)
	a := verify.Applied{Config: "/etc/niclane/lanes.yaml", Lanes: p.Lanes, Ended: true}
	a.State = c.State.Clone()
	for _, s := range p.Steps {
		a.State.Put(s.Old, s.New)
		a.Owned = append(a.Owned, plan.Record{Original: s.Old, Last: s.New, Part: s.Part, Cause: s.Cause})
	}
	return a, a.State.Clone(), p
}

// TestEveryObject changes every object of every golden plan: it removes the object, and gives it
// every other value that a kernel distinguishes. Each change must give one drift that names the
// object.
func TestEveryObject(t *testing.T) {
	kinds := map[string]int{}
	for _, c := range golden.Cases(t, "../plan/testdata") {
		t.Run(c.Name, func(t *testing.T) {
			a, now, p := applied(t, c)
			for _, f := range verify.State(a, now) {
				if f.Severity != verify.OK {
					t.Errorf("as applied: %+v", f)
				}
			}
			for _, m := range mutate.All(p.Steps) {
				for i, s := range p.Steps {
					if !strings.HasPrefix(m.Name, "another ") || len(m.Steps) != len(p.Steps) ||
						device.Equal(m.Steps[i].New, s.New) {
						continue
					}
					kinds[s.Object().Kind()]++
					wantDrift(t, a, now, s.New, m.Steps[i].New)
				}
			}
			for _, s := range p.Steps {
				switch s.New.(type) {
				case nil, device.Thread, device.CPUThread, device.Channels, device.Feature, device.Affinity:
					// they disappear only with another object, or never
				case device.NAPIConfig: // Put does not remove a NAPI's configuration
					st := now.Clone()
					for i := range st.Devices {
						st.Devices[i].NAPIs = slices.DeleteFunc(st.Devices[i].NAPIs,
							func(n device.NAPI) bool { return n.Config.Key() == s.Key() })
					}
					wantNamed(t, a, st, s.New, nil)
				default:
					wantDrift(t, a, now, s.New, nil)
				}
			}
		})
	}
	for _, kind := range []string{"file", "qdisc", "class", "filter-entry", "filter-default", "rss", "rule", "napi",
		"thread", "xdp-entry", "cpu-lane", "cpu-queue"} {
		if kinds[kind] == 0 {
			t.Errorf("no object of kind %s took another value", kind)
		}
	}
}

func wantDrift(t *testing.T, a verify.Applied, now *device.State, old, next device.Object) {
	t.Helper()
	st := now.Clone()
	st.Put(old, next)
	wantNamed(t, a, st, old, next)
}

// wantNamed checks that exactly one finding about st names the object that has changed from old
// to next.
func wantNamed(t *testing.T, a verify.Applied, st *device.State, old, next device.Object) {
	t.Helper()
	var hit *verify.Finding
	fs := verify.State(a, st)
	for i, f := range fs {
		if f.Severity == verify.Drift && (f.Key == old.Key() || slices.Contains(f.With, old.Key())) {
			if hit != nil {
				t.Errorf("%s is named twice", old.Key())
			}
			hit = &fs[i]
		}
	}
	switch {
	case hit == nil:
		t.Errorf("%s: %s became %s, and nothing was found:\n%+v", old.Key(), plan.Brief(old), plan.Brief(next), fs)
	case hit.Meaning == "" || strings.Contains(hit.Meaning, "not as"):
		t.Errorf("%s: %s became %s: means %q", old.Key(), plan.Brief(old), plan.Brief(next), hit.Meaning)
	case hit.Want == hit.Found || hit.Repair == "":
		t.Errorf("%s: want %q, found %q, repair %q", old.Key(), hit.Want, hit.Found, hit.Repair)
	}
}

func emulated(t *testing.T, name string) (verify.Applied, *device.State) {
	t.Helper()
	cases := golden.Cases(t, "../plan/testdata")
	i := slices.IndexFunc(cases, func(c golden.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no golden %s", name)
	}
	a, now, _ := applied(t, cases[i])
	return a, now
}

// TestPlainReceive: if lanes have processors instead of queues, all lanes share the receive
// queues. So packet steering on any of these queues moves packets of a lane.
func TestPlainReceive(t *testing.T) {
	a, now := emulated(t, "plain_two_lanes")
	a.State = now.Clone()
	path := "/sys/class/net/lane0/queues/rx-6/rps_cpus"
	f, ok := now.Files[path]
	if !ok {
		t.Fatalf("the fixture has no %s", path)
	}
	f.Value = "2"
	if device.Equal(f, now.Files[path]) {
		t.Fatalf("%s is %s already", path, f.Value)
	}
	now.Files[path] = f
	if fs := drifts(verify.State(a, now)); len(fs) != 1 || fs[0].Part != device.PartSteering {
		t.Errorf("RPS of a receive queue: %+v", fs)
	}
	now.Files[path] = a.State.Files[path]
	f.Path = strings.Replace(path, "rx-6/rps_cpus", "tx-6/xps_cpus", 1)
	now.Files[f.Path] = f
	if fs := drifts(verify.State(a, now)); len(fs) != 1 || fs[0].Part != device.PartMapper {
		t.Errorf("XPS of a lane's transmit queue: %+v", fs)
	}
}

// TestDrift checks the printed text for each kind of drift.
func TestDrift(t *testing.T) {
	queues := func(d *device.Device, rx, tx int) { d.RxQueues, d.TxQueues = rx, tx }
	filter := func(pref uint16, handle uint32, name string) device.FilterState {
		return device.FilterState{Filter: device.Filter{Dev: "lane0", Parent: "egress", Pref: pref, Handle: handle,
			Program: name}, Type: "bpf", Name: name}
	}
	web4 := device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}
	for _, c := range []struct {
		name   string
		change func(a *verify.Applied, st *device.State, d *device.Device)
		want   string
	}{
		{"queues_fewer", func(_ *verify.Applied, _ *device.State, d *device.Device) { queues(d, 5, 5) }, `
drift    all lanes on lane0, queue-set: queues/lane0
         want     8 receive, 8 transmit
         found    5 receive, 5 transmit
         means    lane web has lost queues 5-6
         repair   ethtool -L lane0 rx 8 tx 8, then niclane apply /etc/niclane/lanes.yaml
         also     14 objects gone with it: file/sys/class/net/lane0/queues/tx-5/xps_rxqs, file/sys/class/net/lane0/queues/tx-6/xps_rxqs, file/sys/class/net/lane0/queues/rx-5/rps_cpus, ...
`},
		{"queues_more", func(_ *verify.Applied, _ *device.State, d *device.Device) { queues(d, 8, 12) }, `
drift    all lanes on lane0, queue-set: queues/lane0
         want     8 receive, 8 transmit
         found    8 receive, 12 transmit
         means    transmit queues 8-11 belong to no lane and are not fenced: the kernel hashes traffic of all lanes to them
         repair   ethtool -L lane0 rx 8 tx 8, then niclane apply /etc/niclane/lanes.yaml
`},
		{"queues_unrecorded", func(a *verify.Applied, _ *device.State,
			d *device.Device) {
			a.State = nil
			queues(d, 5, 5)
		}, `
drift    all lanes on lane0, queue-set: queues/lane0
         want     7 receive, 7 transmit
         found    5 receive, 5 transmit
         means    lane web has lost queues 5-6
         repair   niclane apply /etc/niclane/lanes.yaml
         also     2 objects gone with it: file/sys/class/net/lane0/queues/tx-5/xps_rxqs, file/sys/class/net/lane0/queues/tx-6/xps_rxqs
unknown  all lanes
         means    the other objects right after apply are not recorded (an older niclane applied, or its run directory is gone): verify does not find changes of objects that niclane did not write
         repair   niclane rollback /etc/niclane/lanes.yaml, then niclane apply /etc/niclane/lanes.yaml
`},
		{"device_gone", func(_ *verify.Applied, st *device.State,
			_ *device.Device) {
			st.Devices = nil
			st.Files = nil
		}, `
drift    all lanes on lane0: device/lane0
         want     present
         found    absent
         means    the device is gone, and its lanes with it
         repair   niclane rollback /etc/niclane/lanes.yaml clears the journal; niclane apply /etc/niclane/lanes.yaml once there is a device of that name
         also     28 objects gone with it: rss/lane0/0, file/sys/class/net/lane0/queues/tx-0/xps_cpus, file/sys/class/net/lane0/queues/tx-0/xps_rxqs, ...
`},
		{"filter_before", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Filters = append([]device.FilterState{filter(1, 9, "theirs")}, d.Filters...)
		}, `
drift    all lanes on lane0, classifier: filter/lane0/egress/1/9
         want     niclane's classifier (pref 1) first
         found    theirs at pref 1, before it
         means    the packets that it does not pass on never reach niclane's classifier: they leave as the default lane's, or elsewhere
         repair   move it behind pref 1, or tc filter del dev lane0 egress pref 1
`},
		{"tcx_before", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Programs = append(d.Programs, device.Program{Attach: device.AttachTCXEgress, ID: 7, Name: "theirs"})
		}, `
drift    all lanes on lane0, classifier: program/lane0/tcx-egress/theirs
         want     absent
         found    theirs, program 7
         means    it runs before niclane's classifier: packets that it does not pass on (TCX_NEXT) leave as the default lane's, or elsewhere
         repair   detach it, if it is not meant to be there (bpftool net show dev lane0)
`},
		{"xdp_came", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Programs = append(d.Programs, device.Program{Attach: device.AttachXDP, ID: 8, Name: "theirs"})
		}, `
drift    all lanes on lane0, steering: program/lane0/xdp/theirs
         want     absent
         found    theirs, program 8
         means    it runs before everything else: packets that it drops, sends or redirects never reach a lane
         repair   ip link set dev lane0 xdp off, if it is not meant to be there
`},
		{"rule_into_lane", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Rules = append(d.Rules, device.Rule{Dev: "lane0",
				Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53}, Queue: 3})
		}, `
drift    lane redis on lane0, steering: rule/lane0/udp4,port=53
         want     absent
         found    queue 3
         means    packets of udp4,port=53 arrive in the lane's queues and are not the lane's
         repair   ethtool -N lane0 delete LOCATION (ethtool -n lane0 shows it)
`},
		{"rule_over_lane", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Rules = append(d.Rules, device.Rule{Dev: "lane0",
				Match: device.Match{Family: 4, Protocol: "tcp", Remote: "10.0.0.0/8"}, Queue: 0})
		}, `
drift    lane redis on lane0, steering: rule/lane0/tcp4,remote=10.0.0.0/8
         want     absent
         found    queue 0
         means    it may take packets of tcp4,local=10.77.0.1/32,port=6379 from the lane: if both match, the card decides by location
         repair   ethtool -N lane0 delete LOCATION (ethtool -n lane0 shows it)
`},
		{"rule_elsewhere", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Rules = append(d.Rules, device.Rule{Dev: "lane0",
				Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53}, Queue: 0})
		}, ``},
		{"rules_of_other_flows", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Rules = append(d.Rules, device.Rule{Dev: "lane0",
				Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 22}},
				device.Rule{Dev: "lane0", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 6379,
					Local: "10.78.0.0/16"}},
				device.Rule{Dev: "lane0", Match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 443,
					Remote: "fd00:77::3/128"}})
		}, ``},
		{"context_into_lane", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.RSS = append(slices.Clip(d.RSS), device.RSSTable{Dev: "lane0", Context: 9, Queues: []int{0, 2, 5}})
		}, `
drift    lane redis on lane0, queue-set: rss/lane0/9
         want     absent
         found    queues 0,2,5
         means    packets that rules of another program send to context 9 arrive in queues 2,5 of the lane
         repair   ethtool -X lane0 context 9 delete
`},
		{"default_table", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.RSS = slices.Clone(d.RSS)
			d.RSS[0].Queues = []int{0, 1, 2}
		}, `
drift    lane default on lane0, queue-set: rss/lane0/0
         want     queues 0-1
         found    queues 0-2
         means    packets that no rule matches also arrive in queues 2 (lane redis)
         repair   niclane apply /etc/niclane/lanes.yaml
`},
		{"entry_changed", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Entries = slices.Clone(d.Entries)
			for i, e := range d.Entries {
				if e.Match == web4 {
					d.Entries[i].Priority = "1:10"
				}
			}
		}, `
drift    lane web on lane0, classifier: entry/filter/lane0/egress/1/28268/tcp4,port=80
         want     1:11
         found    1:10
         means    on transmit packets of tcp4,port=80 leave in class 1:10 (lane redis)
         repair   niclane apply /etc/niclane/lanes.yaml
`},
		{"irq_moved", func(a *verify.Applied, st *device.State, d *device.Device) {
			irq := device.IRQ{Number: 41, Name: "lane0-TxRx-2", Queue: 2}
			d.IRQs = []device.IRQ{irq}
			a.Owned = append(a.Owned, plan.Record{Last: device.Affinity{Dev: "lane0", Queue: 2, CPUs: []string{"1"}},
				Part: device.PartInterrupts, Cause: "lanes.redis.cpus"})
			f := device.File{Path: "/proc/irq/41/smp_affinity_list", Format: device.FileCPUList, Value: "0-1"}
			st.Files[f.Path] = f
		}, `
drift    lane redis on lane0, interrupts: affinity/lane0/2
         want     CPUs 1
         found    CPUs 0-1
         means    the interrupt of queue 2 (lane redis) moved: it is handled on processors 0-1
         repair   niclane apply /etc/niclane/lanes.yaml
`},
		{"irq_not_written", func(a *verify.Applied, st *device.State, d *device.Device) {
			d.IRQs = []device.IRQ{{Number: 41, Name: "lane0-TxRx-2", Queue: 2},
				{Number: 42, Name: "lane0-TxRx-0", Queue: 0}}
			a.State.Device("lane0").IRQs = d.IRQs
			for _, path := range []string{"/proc/irq/41/smp_affinity_list", "/proc/irq/42/smp_affinity_list"} {
				f := device.File{Path: path, Format: device.FileCPUList, Value: "1"}
				a.State.Files[path] = f
				f.Value = "0"
				st.Files[path] = f
			}
		}, `
drift    lane redis on lane0, interrupts: affinity/lane0/2
         want     CPUs 1
         found    CPUs 0
         means    the interrupt of queue 2 (lane redis) moved: it is handled on processors 0
         repair   niclane apply /etc/niclane/lanes.yaml, or echo 1 > /proc/irq/41/smp_affinity_list
`},
		{"cpuset", func(a *verify.Applied, st *device.State, _ *device.Device) {
			f := device.File{Path: "/sys/fs/cgroup/db/cpuset.cpus", Format: device.FileCPUList, Value: "1"}
			a.Owned = append(a.Owned, plan.Record{Last: f, Part: device.PartProcessors, Cause: "lanes.redis.cpus"})
			f.Value = "0-1"
			st.Files[f.Path] = f
		}, `
drift    lane redis, processors: file/sys/fs/cgroup/db/cpuset.cpus
         want     "1", CPUs 1
         found    "0-1", CPUs 0-1
         means    processes of /sys/fs/cgroup/db run on processors 0-1
         repair   niclane apply /etc/niclane/lanes.yaml
`},
		{"filter_replaced", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			d.Filters = slices.Clone(d.Filters)
			d.Filters[len(d.Filters)-1].Name = "theirs"
			d.Entries = nil
		}, `
drift    all lanes on lane0, classifier: filter/lane0/egress/1/28268
         want     niclane_egress
         found    theirs
         means    another program is in the classifier's place: on transmit nothing distinguishes the lanes' packets from others, and all leave as the default lane's
         repair   tc filter del dev lane0 egress pref 1, then niclane apply /etc/niclane/lanes.yaml
         also     5 objects gone with it: entry/filter/lane0/egress/1/28268/tcp4,local=10.77.0.1/32,port=6379, entry/filter/lane0/egress/1/28268/tcp6,local=fd00:77::1/128,port=6379, entry/filter/lane0/egress/1/28268/tcp4,port=80, ...
`},
		{"rules_off", func(a *verify.Applied, _ *device.State, d *device.Device) {
			a.State.Device("lane0").Features = map[string]device.Setting{"rx-ntuple-filter": {On: true}}
			d.Features = map[string]device.Setting{"rx-ntuple-filter": {}}
		}, `
drift    all lanes on lane0, steering: feature/lane0/rx-ntuple-filter
         want     on
         found    off
         means    the card's rules are switched off or dropped: packets of the lanes arrive as default traffic
         repair   ethtool -K lane0 rx-ntuple-filter on, then niclane apply /etc/niclane/lanes.yaml
`},
		{"threaded_by_others", func(_ *verify.Applied, _ *device.State, d *device.Device) {
			for i := range d.NAPIs {
				if q := d.NAPIs[i].Config.Queue; q == 0 || q == 4 {
					d.NAPIs[i].Config.Threaded = "on"
				}
			}
		}, `
drift    lane web on lane0, poller: napi/lane0/4
         want     threaded off, defer-hard-irqs 0, gro-flush-timeout 0 ns
         found    threaded on, defer-hard-irqs 0, gro-flush-timeout 0 ns
         means    queue 4 of lane web is polled in another way than asked for
         repair   niclane apply /etc/niclane/lanes.yaml, or ynl --family netdev --do napi-set for the NAPI of lane0 rx-4: threaded off, defer-hard-irqs 0, gro-flush-timeout 0
`},
		{"killed", func(a *verify.Applied, _ *device.State, _ *device.Device) { a.Ended = false }, `
drift    all lanes: journal
         want     all steps made
         found    apply did not finish
         means    apply or its undoing was killed, left objects behind, or is still running: only part of the lanes exists
         repair   niclane apply /etc/niclane/lanes.yaml, or niclane rollback /etc/niclane/lanes.yaml
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, now := emulated(t, "two_lanes_ipv6")
			a.State = now.Clone()
			a.State.Files = maps.Clone(now.Files)
			c.change(&a, now, now.Device("lane0"))
			wantText(t, c.want, text(drifts(verify.State(a, now))))
		})
	}
}

// TestDetachedNative: a driver has extra receive queues for its XDP program. If the program is
// detached, one finding names the program, and the missing queues belong to that finding. If no
// user has set the RSS table, it is the driver's before and after, which is no drift.
func TestDetachedNative(t *testing.T) {
	a, now := emulated(t, "maxrate")
	dev := now.Devices[0].Name
	apart := a.State.Device(dev)
	apart.RxQueues += 2
	apart.RSS = []device.RSSTable{{Dev: dev, Queues: []int{0, 1, 2, 3}}}
	for _, c := range []struct {
		name   string
		change func(st *device.State, d *device.Device)
		want   []string // keys
		with   []string
	}{
		{"detached", func(st *device.State, d *device.Device) {
			st.Put(device.XDP{Dev: dev, Mode: "native", Program: plan.IngressProgram}, nil)
		},
			[]string{"xdp/" + dev}, []string{"queues/" + dev}},
		{"fewer queues", func(*device.State, *device.Device) {}, []string{"queues/" + dev}, nil},
		{"and fewer to transmit", func(st *device.State, d *device.Device) {
			st.Put(device.XDP{Dev: dev, Mode: "native", Program: plan.IngressProgram}, nil)
			st.Device(dev).TxQueues--
		}, []string{"queues/" + dev, "xdp/" + dev}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := now.Clone()
			c.change(st, st.Device(dev))
			st.Device(dev).RSS = []device.RSSTable{{Dev: dev, Queues: []int{0, 1}}}
			var keys, with []string
			for _, f := range drifts(verify.State(a, st)) {
				keys, with = append(keys, f.Key), append(with, f.With...)
				says := strings.Contains(f.Meaning, "the driver's queues for the program are gone: ")
				if want := f.Key == "xdp/"+dev && c.name == "detached"; says != want {
					t.Errorf("%s means %q", f.Key, f.Meaning)
				}
				if strings.Contains(f.Repair, "ethtool") && c.name == "detached" {
					t.Errorf("repair %q", f.Repair)
				}
			}
			for _, key := range c.with {
				if !slices.Contains(with, key) {
					t.Errorf("%s does not follow: %v", key, with)
				}
			}
			if diff := cmp.Diff(c.want, keys); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestClassesGone: with the card's traffic classes, the kernel also clears the xps_rxqs files of
// their queues. That must be one finding. If the classes still exist, another program has cleared
// the files.
func TestClassesGone(t *testing.T) {
	a, now := emulated(t, "card_channel")
	pair := device.File{Path: "/sys/class/net/sim0/queues/tx-3/xps_rxqs", Format: device.FileCPUMask, Value: "0"}
	for _, o := range []struct {
		old, new device.Object
		with     int
	}{
		{device.Qdisc{Dev: "sim0", Parent: "root", Type: "mqprio", Handle: "1:"}, nil, 8},
		{pair, pair, 0},
	} {
		st := now.Clone()
		st.Put(o.old, o.new)
		fs := slices.DeleteFunc(verify.State(a, st),
			func(f verify.Finding) bool { return f.Severity != verify.Drift || f.Part != device.PartMapper })
		if len(fs) != 1 || fs[0].Key != o.old.Key() || len(fs[0].With) != o.with {
			t.Errorf("%s: %+v, want one, with %d others", o.old.Key(), fs, o.with)
		}
	}
}

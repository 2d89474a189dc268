// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// A breach breaks a promise of a lane. It changes an object that niclane did not necessarily
// write; TestEveryObject changes those that it did. do returns false if the device has no such
// object.
type breach struct {
	promise, name string
	do            func(x place) bool
}

// A place is a lane on a device, with the mechanisms that were chosen there.
type place struct {
	st   *device.State
	d    *device.Device
	l    plan.FittedLane
	made map[device.Part]string
}

// put writes a value to a queue's file. It returns false if the file is missing or has this value
// already.
func put(st *device.State, path, value string) bool {
	f, there := st.Files[path]
	was := f
	f.Value = value
	if !there || device.Equal(was, f) {
		return false
	}
	st.Files[path] = f
	return true
}

// putQueue writes a value to a file of the lane's first queue.
func (x place) putQueue(kind, name, value string) bool {
	path := fmt.Sprintf("/sys/class/net/%s/queues/%s-%d/%s", x.d.Name, kind, x.l.Queues[0], name)
	return put(x.st, path, value)
}

// fewer reduces the number of a device's channels by one.
func fewer(d *device.Device) {
	if d.Channels == nil {
		return
	}
	c := *d.Channels
	if c.Combined > 0 {
		c.Combined--
	} else {
		c.RX, c.TX = c.RX-1, c.TX-1
	}
	d.Channels = &c
}

// own reports whether one of the named mechanisms makes the part.
func (x place) own(part device.Part, names ...string) bool {
	return slices.Contains(names, x.made[part])
}

func switchOff(d *device.Device, feature string) bool {
	f, there := d.Features[feature]
	if !there || !f.On {
		return false
	}
	f.On = false
	d.Features[feature] = f
	return true
}

var receivers = []string{plan.ByRSSContext, plan.BySingleQueue, plan.ByMqprioChannel}

var breaches = []breach{
	{"receive", "steered on by RPS", func(x place) bool {
		return x.made[device.PartQueueSet] != plan.ByShared && x.putQueue("rx", "rps_cpus", "2")
	}},
	{"receive", "steered on by RFS", func(x place) bool {
		return x.made[device.PartQueueSet] != plan.ByShared && x.putQueue("rx", "rps_flow_cnt", "4096")
	}},
	{"receive", "rules off", func(x place) bool {
		return x.made[device.PartSteering] == plan.ByRules && switchOff(x.d, "rx-ntuple-filter")
	}},
	{"receive", "filters off", func(x place) bool {
		return x.made[device.PartSteering] == plan.ByFlower && switchOff(x.d, "hw-tc-offload")
	}},
	{"receive", "another's rule", func(x place) bool {
		if x.made[device.PartSteering] != plan.ByRules {
			return false
		}
		x.d.Rules = append(slices.Clone(x.d.Rules),
			device.Rule{Dev: x.d.Name, Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 4444},
				Queue: x.l.Queues[0]})
		return true
	}},
	{"receive", "another's filter", func(x place) bool {
		if x.made[device.PartSteering] != plan.ByFlower {
			return false
		}
		x.d.Flowers = append(slices.Clone(x.d.Flowers),
			device.Flower{Dev: x.d.Name, Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 4444}, Class: 1})
		return true
	}},
	{"receive", "down", func(x place) bool {
		x.d.Up = false
		return true
	}},
	{"receive", "fewer queues", func(x place) bool {
		x.d.RxQueues--
		fewer(x.d)
		return x.d.RxQueues > 0
	}},
	{"transmit", "fewer queues", func(x place) bool {
		x.d.TxQueues--
		fewer(x.d)
		return x.d.TxQueues > 0
	}},
	{"transmit", "XPS", func(x place) bool {
		return x.made[device.PartMapper] != plan.ByShared && x.putQueue("tx", "xps_cpus", "2")
	}},
	{"class", "a program before the classifier", func(x place) bool {
		if x.made[device.PartClassifier] != plan.ByClsactBPF || !classified(x.d) {
			return false
		}
		x.d.Programs = append(slices.Clone(x.d.Programs),
			device.Program{Attach: device.AttachTCXEgress, ID: 7777, Name: "other"})
		return true
	}},
	{"class", "a qdisc below it", func(x place) bool {
		if x.l.Class == "" || slices.ContainsFunc(x.d.Qdiscs,
			func(q device.QdiscState) bool { return q.Parent == x.l.Class }) {
			return false
		}
		x.d.Qdiscs = append(slices.Clone(x.d.Qdiscs),
			device.QdiscState{Qdisc: device.Qdisc{Dev: x.d.Name, Parent: x.l.Class, Type: "pfifo", Handle: "7777:",
				Limit: 1}})
		return true
	}},
	{"rank", "another's class", func(x place) bool {
		if x.l.Class == "" {
			return false
		}
		x.d.Classes = append(slices.Clone(x.d.Classes),
			device.Class{Dev: x.d.Name, ID: "1:777", Parent: "1:1", Rate: 1e6, Ceil: 1e9})
		return true
	}},
	{"ceiling", "tx_maxrate", func(x place) bool {
		return x.putQueue("tx", "tx_maxrate", "77")
	}},
	{"ceiling", "a shaper", func(x place) bool {
		if slices.ContainsFunc(x.d.Shapers, func(s device.Shaper) bool { return s.Queue == x.l.Queues[0] }) {
			return false
		}
		x.d.Shapers = append(slices.Clone(x.d.Shapers), device.Shaper{Dev: x.d.Name, Queue: x.l.Queues[0], Max: 1e6})
		return true
	}},
	{"guarantee", "a slower link", func(x place) bool {
		if x.own(device.PartBandwidth, plan.ByHTB, plan.ByHTBOffload) && x.l.Class != "" && x.d.Speed > 0 {
			x.d.Speed /= 1000
			return true
		}
		return false
	}},
	{"poller", "threads", func(x place) bool {
		if !x.own(device.PartQueueSet, receivers...) {
			return false
		}
		for i, n := range x.d.NAPIs {
			if n.Config.Queue == x.l.Queues[0] {
				x.d.NAPIs = slices.Clone(x.d.NAPIs)
				x.d.NAPIs[i].Config.Threaded = map[string]string{"off": "on", "on": "off",
					"busy": "off"}[n.Config.Threaded]
				return true
			}
		}
		return false
	}},
	{"poller", "stopped", func(x place) bool {
		for i, p := range x.d.Pollers {
			if slices.Contains(p.Queues, x.l.Queues[0]) {
				x.d.Pollers = slices.Clone(x.d.Pollers)
				x.d.Pollers[i].Doing = device.PollerHung
				return true
			}
		}
		return false
	}},
	{"processors", "interrupts moved", func(x place) bool {
		if !x.own(device.PartQueueSet, receivers...) {
			return false
		}
		for _, irq := range x.d.IRQs {
			if irq.Queue == x.l.Queues[0] {
				f, there := x.st.Files[device.IRQPath(irq.Number)]
				return there && put(x.st, f.Path, map[bool]string{true: "1", false: "0"}[f.Value == "0"])
			}
		}
		return false
	}},
	{"processors", "offline", func(x place) bool {
		for i := range x.st.CPUs {
			if len(x.l.CPUs) > 0 && x.st.CPUs[i].ID == x.l.CPUs[0] {
				x.st.CPUs[i].Online = false
				return true
			}
		}
		return false
	}},
}

// classified reports whether the device has niclane's classifier.
func classified(d *device.Device) bool {
	return slices.ContainsFunc(d.Filters, func(f device.FilterState) bool { return f.Name == plan.EgressProgram })
}

// TestPromises breaks each promise of a lane, for each mechanism. verify must then report at
// least one finding that is not ok.
func TestPromises(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range golden.Cases(t, "../plan/testdata") {
		a, now, p := applied(t, c)
		made := map[string]map[device.Part]string{}
		for _, choice := range p.Choices { // grouped by device, in the order of the devices
			at := len(made) - 1
			if choice.Part == device.PartQueueSet {
				at++
			}
			name := names(p)[at]
			if made[name] == nil {
				made[name] = map[device.Part]string{}
			}
			made[name][choice.Part] = choice.Mechanism
		}
		for _, l := range p.Lanes {
			if l.Name == intent.DefaultLane || len(l.Queues) == 0 {
				continue
			}
			for _, b := range breaches {
				st := now.Clone()
				if !b.do(place{st, st.Device(l.Device), l, made[l.Device]}) {
					continue
				}
				for part, name := range made[l.Device] {
					covered[string(part)+" "+name+" "+b.promise] = true
				}
				fs := verify.State(a, st)
				if verify.Found(fs, verify.Drift)+verify.Found(fs, verify.Unknown) == 0 {
					t.Errorf("%s, lane %s (%v): %s, %s: not found", c.Name, l.Name, made[l.Device], b.promise, b.name)
				}
				for _, f := range fs {
					if f.Repair == "niclane apply "+a.Config && !repaired(c, st, a, f.Key) {
						t.Errorf("%s, lane %s: %s, %s: apply, which is to repair %s, does not change it", c.Name,
							l.Name, b.promise, b.name, f.Key)
					}
				}
			}
		}
	}
	for part, promises := range map[device.Part][]string{
		device.PartQueueSet:  {"receive", "poller", "processors"},
		device.PartMapper:    {"transmit"},
		device.PartBandwidth: {"ceiling"},
		device.PartPoller:    {"processors"},
	} {
		for _, name := range plan.Mechanisms(part) {
			for _, promise := range promises {
				exempt := promise == "poller" && !slices.Contains(receivers, name)
				if !covered[string(part)+" "+name+" "+promise] && !exempt {
					t.Errorf("no golden with %s %s breaks %s", part, name, promise)
				}
			}
		}
	}
}

// repaired reports whether a new plan would change the object, or would refuse the lanes.
func repaired(c golden.Case, st *device.State, a verify.Applied, key string) bool {
	p, err := golden.Plan(c.Lanes, st, plan.Owned{Records: a.Owned})
	return err != nil || slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
		return s.Key() == key || strings.HasPrefix(key, "queues/")
	})
}

// names returns the devices of a plan, in the order of planning.
func names(p *plan.Plan) []string {
	var out []string
	for _, l := range p.Lanes {
		if !slices.Contains(out, l.Device) {
			out = append(out, l.Device)
		}
	}
	return out
}

// TestTrafficPromises: all packets of a lane are in a wrong place, or there are none. verify must
// not report any place as ok. If packets are in a wrong place, each place of the lane must be a
// drift.
func TestTrafficPromises(t *testing.T) {
	for _, c := range golden.Cases(t, "../plan/testdata") {
		a, _, p := applied(t, c)
		for _, l := range p.Lanes {
			if l.Name == intent.DefaultLane {
				continue
			}
			astray := []verify.Cell{{Lane: l.Name, Queue: 500, Packets: 9}}
			sent := astray
			if !slices.Contains(l.Queues, 0) { // a queue of the channels, in case the card has extra queues for lanes
				sent = []verify.Cell{{Lane: l.Name, Packets: 9}}
			}
			seen := verify.Watched{Device: l.Device, Received: astray, Sent: sent, Classed: astray, Direct: astray,
				Handed: astray}
			drifts := map[device.Part]bool{}
			for _, f := range verify.Traffic(a, seen) {
				switch {
				case f.Lane == l.Name && f.Severity == verify.OK:
					t.Errorf("%s: %+v", c.Name, f)
				case f.Lane == l.Name && f.Severity == verify.Drift:
					drifts[f.Part] = true
				}
			}
			for part, has := range map[device.Part]bool{
				device.PartSteering: slices.ContainsFunc(p.Steps,
					func(s plan.Step) bool { return steers(s.New, l.Device) }),
				device.PartBandwidth: l.Class != "" && len(verify.Named(a, l.Device)) == 0,
			} {
				if len(verify.Matches(a, l.Device)[l.Name]) > 0 && has && !drifts[part] {
					t.Errorf("%s, lane %s: no drift of %s: %v", c.Name, l.Name, part, drifts)
				}
			}
			for _, f := range verify.Traffic(a, verify.Watched{Device: l.Device}) {
				if f.Severity == verify.OK {
					t.Errorf("%s, without a packet: %+v", c.Name, f)
				}
			}
		}
	}
}

// steers reports whether an object steers packets of the device to a lane's queues or processors.
func steers(o device.Object, dev string) bool {
	switch o := o.(type) {
	case device.Rule:
		return o.Dev == dev
	case device.Flower:
		return o.Dev == dev
	case device.XDPEntry:
		return o.Dev == dev
	}
	return false
}

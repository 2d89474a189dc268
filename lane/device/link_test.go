// SPDX-License-Identifier: Apache-2.0

package device_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
)

// TestRenamed renames the device of an object of every kind, and renames it back.
func TestRenamed(t *testing.T) {
	m := device.Match{Family: 4, Protocol: "tcp", LocalPort: 80}
	filter := device.Filter{Dev: "v0", Parent: "egress", Pref: 1, Handle: 2}
	for _, o := range []device.Object{
		device.Qdisc{Dev: "v0", Parent: "root"}, device.Class{Dev: "v0", ID: "1:10"},
		device.Flower{Dev: "v0", Match: m}, filter,
		device.FilterEntry{Filter: filter.Key(), Match: m}, device.FilterDefault{Filter: filter.Key()},
		device.Tunnels{Filter: filter.Key()}, device.Tunnels{Filter: device.XDP{Dev: "v0"}.Key()},
		device.Shaper{Dev: "v0"}, device.CgroupPriority{Cgroup: "/v0/a", Dev: "v0"}, device.RSSTable{Dev: "v0"},
		device.Rule{Dev: "v0", Match: m},
		device.NAPIConfig{Dev: "v0"}, device.Thread{Dev: "v0"}, device.Poller{Dev: "v0"}, device.Channels{Dev: "v0"},
		device.Coalesce{Dev: "v0"},
		device.Affinity{Dev: "v0"}, device.DriverParam{Dev: "v0", Name: "p"},
		device.PrivFlag{Dev: "v0", Name: "f"}, device.Ring{Dev: "v0"},
		device.Feature{Dev: "v0", Name: "v0"},
		device.XDP{Dev: "v0"}, device.CPUQueue{Dev: "v0"}, device.CPUThread{Dev: "v0"}, device.CPULane{Dev: "v0"},
		device.XDPEntry{Dev: "v0", Match: m},
		device.File{Path: "/sys/class/net/v0/queues/rx-0/rps_cpus"},
		device.File{Path: "/proc/sys/net/ipv4/conf/v0/arp_ignore"},
	} {
		got := device.Renamed(o, "other")
		want := strings.Replace(o.Key(), "v0", "other", 1)
		if _, group := o.(device.CgroupPriority); group {
			want = "cgrouppriority/other/v0/a"
		}
		if got.Key() != want {
			t.Errorf("%s is %s, want %s", o.Key(), got.Key(), want)
		}
		if device.DeviceOf(got) != "other" {
			t.Errorf("%s is on %q", got.Key(), device.DeviceOf(got))
		}
		if back := device.Renamed(got, "v0"); !device.Equal(back, o) || back.Key() != o.Key() {
			t.Errorf("%s comes back as %s", o.Key(), back.Key())
		}
	}
	for _, o := range []device.Object{device.File{Path: "/proc/sys/net/core/busy_poll"},
		device.CgroupClass{Cgroup: "/v0"}, nil} {
		if got := device.Renamed(o, "other"); got != o {
			t.Errorf("%v became %v", o, got)
		}
	}
}

func TestSameLink(t *testing.T) {
	veth := device.Link{Name: "v0", Index: 5, Type: "veth", MAC: "02:00:00:00:00:01"}
	card := device.Link{Name: "eth0", Index: 5, MAC: "02:00:00:00:00:02", PermMAC: "02:00:00:00:00:02",
		Parent: "0000:3b:00.0"}
	with := func(l device.Link, change func(*device.Link)) device.Link { change(&l); return l }
	for _, tt := range []struct {
		name            string
		was, now        device.Link
		same, elsewhere bool
	}{
		{"unchanged", veth, veth, true, true},
		{"renamed", veth, with(veth, func(l *device.Link) { l.Name = "w0" }), true, true},
		{"another address", veth, with(veth, func(l *device.Link) { l.MAC = "02:00:00:00:00:09" }), true, false},
		{"another index", veth, with(veth, func(l *device.Link) { l.Index = 6 }), false, true},
		{"another slave of its bond", veth, with(veth, func(l *device.Link) { l.Index, l.Name = 6, "w0" }), false,
			false},
		{"another representor of its card", with(card, func(l *device.Link) { l.PermMAC = "" }),
			with(card, func(l *device.Link) { l.PermMAC, l.MAC, l.Index, l.Name = "", "02:00:00:00:00:07", 6, "eth1" }),
			false, false},
		{"another kind", veth, with(veth, func(l *device.Link) { l.Type = "bridge" }), false, false},
		{"no address at all", with(veth, func(l *device.Link) { l.MAC = "" }),
			with(veth, func(l *device.Link) { l.MAC, l.Index = "", 6 }), false, false},
		{"card elsewhere, with an address of a pod", card,
			with(card, func(l *device.Link) { l.Index, l.MAC = 2, "02:00:00:00:00:09" }), false, true},
		{"another port of the card", card, with(card, func(l *device.Link) { l.PermMAC = "02:00:00:00:00:03" }), false,
			false},
		{"another card of that number", card, with(card, func(l *device.Link) { l.Parent = "0000:3c:00.0" }), false,
			false},
	} {
		if got := tt.now.Same(tt.was); got != tt.same {
			t.Errorf("%s: same is %v", tt.name, got)
		}
		if got := tt.now.SameElsewhere(tt.was); got != tt.elsewhere {
			t.Errorf("%s: same elsewhere is %v", tt.name, got)
		}
	}
}

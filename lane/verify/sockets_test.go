// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

func TestSockets(t *testing.T) {
	now := &device.State{Devices: []device.Device{{Name: "eth0", NAPIs: []device.NAPI{
		{ID: 11, Config: device.NAPIConfig{Queue: 0}}, {ID: 12, Config: device.NAPIConfig{Queue: 1}},
		{ID: 13, Config: device.NAPIConfig{Queue: -1}},
	}}}}
	match := device.Match{Family: 4, Protocol: "tcp", Local: "10.0.0.1/32", LocalPort: 80}
	a := Applied{
		Lanes: []plan.FittedLane{{Name: "default", Device: "eth0", Queues: []int{0}},
			{Name: "web", Device: "eth0", Queues: []int{1}, CPUs: []int{3}, Context: 1}},
		Owned: []plan.Record{
			{Last: device.Rule{Dev: "eth0", Match: match, Context: 1}, Part: device.PartSteering, Cause: "lanes.web"},
		},
	}
	conn := func(local, remote string, napi uint32, cpu int) Connection {
		return Connection{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), NAPI: napi,
			CPU: cpu}
	}
	ok := conn("10.0.0.1:80", "10.0.0.2:1000", 12, 3)
	for _, c := range []struct {
		name  string
		conns []Connection
		want  []Finding
	}{
		{"none", nil, nil},
		{"others'", []Connection{conn("10.0.0.1:81", "10.0.0.2:1", 11, 0), conn("10.0.0.9:80", "10.0.0.2:1", 11, 0),
			conn("[::1]:80", "[::1]:1", 11, 0)}, nil},
		{"where they belong", []Connection{ok, ok}, []Finding{{
			Severity: OK, Lane: "web", Device: "eth0", Part: device.PartSteering, Key: "sockets",
			Meaning: "2 connections of the lane served by the lane's NAPIs on processors 3, according to the sockets",
		}}},
		{"elsewhere", []Connection{ok, conn("10.0.0.1:80", "10.0.0.3:1", 11, 0),
			conn("10.0.0.1:80", "10.0.0.1:1", 0, 0)}, []Finding{{
			Severity: Drift, Lane: "web", Device: "eth0", Part: device.PartSteering, Key: "sockets",
			Want:    "the lane's connections served by the NAPIs of queues 1",
			Found:   "2 of 3 connections served by NAPI 11, NAPI 0",
			Meaning: "threads that busy-poll or are placed by NAPI ID look for them in the wrong place",
			Repair:  "look at the steering findings; a connection from this host itself has no NAPI of the card",
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Sockets(a, now, "eth0", c.conns)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	a.Lanes[1].Aligned = true
	if got := Sockets(a, now, "eth0", []Connection{ok}); len(got) != 2 || got[1].Key != "threads" {
		t.Errorf("aligned: %+v", got)
	}
	if got := Sockets(a, now, "eth1", []Connection{ok}); got != nil {
		t.Errorf("no such device: %+v", got)
	}
}

// TestThreads checks lanes whose application places its threads by NAPI ID.
func TestThreads(t *testing.T) {
	conn := func(n int, napi uint32, tid int) (cs []Connection) {
		for range n {
			cs = append(cs, Connection{
				Local: netip.MustParseAddrPort("10.0.0.1:80"), Remote: netip.MustParseAddrPort("10.0.0.2:1000"),
				NAPI: napi, Thread: tid, Process: "memcached",
			})
		}
		return cs
	}
	finding := Finding{Lane: "cache", Device: "eth0", Part: device.PartSteering, Key: "threads"}
	for _, c := range []struct {
		name  string
		conns []Connection
		want  func(f *Finding)
	}{
		{"each its own", slices.Concat(conn(3, 12, 70), conn(1, 11, 71)), func(f *Finding) {
			f.Severity = OK
			f.Meaning = "each thread has connections of one NAPI: thread 70 of memcached: 3 connections of NAPI 12, " +
				"thread 71 of memcached: 1 connection of NAPI 11"
		}},
		{"one NAPI's by two", slices.Concat(conn(1, 11, 70), conn(1, 11, 71)), func(f *Finding) {
			f.Severity = OK
			f.Meaning = "each thread has connections of one NAPI: thread 70 of memcached: 1 connection of NAPI 11, " +
				"thread 71 of memcached: 1 connection of NAPI 11"
		}},
		{"mixed", slices.Concat(conn(1, 12, 70), conn(2, 11, 70), conn(1, 12, 71), conn(2, 12, 0)), func(f *Finding) {
			f.Severity = Drift
			f.Want = "each thread with connections of one NAPI (aligned)"
			f.Found = "thread 70 of memcached: 3 connections of NAPI 11, 12; not known for 2 connections"
			f.Meaning = "the application does not place them by NAPI ID: one thread answers packets of " +
				"several queues, on the processor where it happens to run"
			f.Repair = "niclane advise --lane cache; connections made before NAPI IDs changed stay where they are " +
				"until they are closed"
		}},
		{"not known", conn(2, 12, 0), func(f *Finding) {
			f.Severity = Unknown
			f.Meaning = "it is not known which threads serve 2 connections of the lane: none of them waits at an epoll " +
				"instance of one thread"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := finding
			c.want(&want)
			got := threadsOf(plan.FittedLane{Name: "cache", Device: "eth0"}, c.conns)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

var (
	path4 = verify.Path{Addr: addr("10.77.0.2"), Source: addr("10.77.0.1"),
		Sources: []netip.Addr{addr("10.77.0.1"), addr("192.0.2.5")}}
	path6 = verify.Path{Addr: addr("fd00:77::2"), Source: addr("fd00:77::1"), Sources: []netip.Addr{addr("fd00:77::1")}}
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// lane returns one lane with the given matches. If follows is true, packets leave by the transmit
// queue of their receive queue; otherwise the classifier chooses the queue.
func lane(follows bool, ms ...device.Match) verify.Applied {
	a := verify.Applied{Lanes: []plan.FittedLane{{Name: "default", Device: "d0"},
		{Name: "web", Device: "d0", Queues: []int{3}}}}
	for _, m := range ms {
		e := device.FilterEntry{Filter: "filter/d0/egress/1/28268", Match: m}
		if !follows {
			e.Queues = []int{3}
		}
		a.Owned = append(a.Owned, plan.Record{Last: e, Cause: "lanes.web"})
	}
	if follows {
		a.Owned = append(a.Owned, plan.Record{Last: device.File{Path: "/sys/class/net/d0/queues/tx-3/xps_rxqs",
			Format: device.FileCPUMask, Value: "8"}})
	}
	return a
}

// TestProbes checks the addresses and ports of the probes for one match.
func TestProbes(t *testing.T) {
	open := path4
	open.Port = 22
	tagged := path4
	tagged.VLAN = 7
	for _, c := range []struct {
		name    string
		match   device.Match
		paths   []verify.Path
		follows bool
		want    string // local, remote, connect, count
		why     string
	}{
		{name: "a port of any address", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80},
			paths: []verify.Path{path4}, want: "10.77.0.1:80 10.77.0.2:0 0 16"},
		{name: "its own address, which is not the one that routes choose",
			match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, Local: "192.0.2.0/24"},
			paths: []verify.Path{path4}, want: "192.0.2.5:80 10.77.0.2:0 0 16"},
		{name: "IPv6", match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 80, Local: "fd00:77::1/128"},
			paths: []verify.Path{path4, path6}, want: "[fd00:77::1]:80 [fd00:77::2]:0 0 16"},
		{name: "an address without port", match: device.Match{Family: 4, Protocol: "tcp", Local: "10.77.0.1/32"},
			paths: []verify.Path{path4}, want: "10.77.0.1:0 10.77.0.2:0 0 16"},
		{name: "a client's port", match: device.Match{Family: 4, Protocol: "tcp", RemotePort: 443,
			Remote: "10.77.0.0/16"},
			paths: []verify.Path{path4}, want: "10.77.0.1:0 10.77.0.2:443 0 16"},
		{name: "both ports: there is one connection", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80,
			RemotePort: 443},
			paths: []verify.Path{path4}, want: "10.77.0.1:80 10.77.0.2:443 0 1"},
		{name: "a port that accepts", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80},
			paths: []verify.Path{open}, want: "10.77.0.1:80 10.77.0.2:0 22 16"},
		{name: "a client's port is not made to accept",
			match: device.Match{Family: 4, Protocol: "tcp", RemotePort: 443},
			paths: []verify.Path{open}, want: "10.77.0.1:0 10.77.0.2:443 0 16"},
		{name: "unless it was given", match: device.Match{Family: 4, Protocol: "tcp", RemotePort: 22},
			paths: []verify.Path{open}, want: "10.77.0.1:0 10.77.0.2:22 22 16"},
		{name: "UDP", match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53},
			paths: []verify.Path{open}, want: "10.77.0.1:53 10.77.0.2:0 0 4"},
		{name: "its VLAN", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, VLAN: 7},
			paths: []verify.Path{tagged}, want: "10.77.0.1:80 10.77.0.2:0 0 16"},
		{name: "any VLAN", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80},
			paths: []verify.Path{tagged}, want: "10.77.0.1:80 10.77.0.2:0 0 16"},

		{name: "UDP without a receive queue", match: device.Match{Family: 4, Protocol: "udp", LocalPort: 53},
			follows: true,
			paths:   []verify.Path{path4}, why: "udp4,port=53 not probed: packets leave by the queue of the " +
				"packets received before, and a UDP probe has received none"},
		{name: "no address of the family", match: device.Match{Family: 6, Protocol: "tcp", LocalPort: 80},
			paths: []verify.Path{path4}, why: "tcp6,port=80 not probed: no IPv6 address to probe was given"},
		{name: "another VLAN", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, VLAN: 8},
			paths: []verify.Path{tagged}, why: "tcp4,vlan=8,port=80 not probed: packets to 10.77.0.2 leave in VLAN 7"},
		{name: "no VLAN", match: device.Match{Family: 4, Protocol: "tcp", LocalPort: 80, VLAN: 8},
			paths: []verify.Path{path4}, why: "tcp4,vlan=8,port=80 not probed: packets to 10.77.0.2 leave untagged"},
		{name: "others only", match: device.Match{Family: 4, Protocol: "tcp", Remote: "10.9.0.0/16", LocalPort: 80},
			paths: []verify.Path{path4}, why: "tcp4,port=80,remote=10.9.0.0/16 not probed: 10.77.0.2 is not in " +
				"10.9.0.0/16"},
		{name: "an address the host has not", match: device.Match{Family: 4, Protocol: "tcp", Local: "10.77.0.9/32",
			LocalPort: 80},
			paths: []verify.Path{path4}, why: "tcp4,local=10.77.0.9/32,port=80 not probed: this host has no address " +
				"in 10.77.0.9/32 that reaches 10.77.0.2 by d0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ps, fs := verify.Probes(lane(c.follows, c.match), "d0", c.paths)
			var got, why []string
			for _, p := range ps {
				if p.Lane == "web" {
					got = append(got, fmt.Sprintf("%s %s %d %d", p.Local, p.Remote, p.Connect, p.Count))
				}
			}
			for _, f := range fs {
				if f.Severity != verify.Unknown || f.Lane != "web" || f.Device != "d0" {
					t.Errorf("finding %+v", f)
				}
				why = append(why, f.Meaning)
			}
			if strings.Join(got, "\n") != c.want || strings.Join(why, "\n") != c.why {
				t.Errorf("got  %q, %q\nwant %q, %q", got, why, c.want, c.why)
			}
			if d := ps[len(ps)-1]; d.Lane != "default" || d.Match != nil || d.Local.Port() != 0 ||
				d.Remote.Port() != 0 || d.Count != 16 {
				t.Errorf("of the default lane: %+v", d)
			}
		})
	}
	if ps, fs := verify.Probes(lane(false), "d0", nil); ps != nil || fs != nil {
		t.Errorf("no address given: %v %v", ps, fs)
	}
	_, fs := verify.Probes(lane(false), "d0", []verify.Path{path4})
	if len(fs) != 1 || !strings.Contains(fs[0].Meaning, "no address or port identifies its packets") {
		t.Errorf("no match: %v", fs)
	}
}

// TestProbesCgroup: verify's own sockets are in another control group than the lane, so it cannot
// probe the lane.
func TestProbesCgroup(t *testing.T) {
	for _, o := range []device.Object{
		device.CgroupClass{Cgroup: "/web", Priority: "1:10"},
		device.CgroupPriority{Cgroup: "/web", Dev: "d0", Priority: "0:8"},
	} {
		a := lane(false, device.Match{Family: 4, Protocol: "tcp", LocalPort: 80})
		a.Owned = append(a.Owned, plan.Record{Last: o, Cause: "lanes.web.cgroup"})
		ps, fs := verify.Probes(a, "d0", []verify.Path{path4})
		if len(ps) != 1 || ps[0].Lane != "default" {
			t.Errorf("%s: probes %+v, want the default lane's only", o.Kind(), ps)
		}
		if len(fs) != 1 || !strings.Contains(fs[0].Meaning, "control group /web") {
			t.Errorf("%s: findings %+v", o.Kind(), fs)
		}
	}
}

// TestBound: for any number of members, the number of packets is limited, and a finding says how
// many members were probed.
func TestBound(t *testing.T) {
	for members, want := range map[int]struct{ probed, each int }{
		1: {1, 16}, 15: {15, 16}, 16: {16, 15}, 100: {100, 2}, 255: {255, 1}, 256: {255, 1}, 1000: {255, 1},
	} {
		var ms []device.Match
		for i := range members {
			ms = append(ms, device.Match{Family: 4, Protocol: "tcp", LocalPort: uint16(i + 1)})
		}
		ps, _ := verify.Probes(lane(false, ms...), "d0", []verify.Path{path4})
		ps, fs := verify.Bound(ps)
		sum, last := 0, 0
		for i, p := range ps {
			sum += p.Count
			if p.Count != want.each {
				t.Fatalf("%d members: %+v, want %d packets", members, p, want.each)
			}
			if i < len(ps)-1 {
				last = int(p.Local.Port())
			}
		}
		if len(ps) != want.probed+1 || ps[len(ps)-1].Lane != "default" || sum > verify.MaxProbes {
			t.Errorf("%d members: %d probes of %d packets, the last %+v; want %d and the default lane's", members,
				len(ps), sum, ps[len(ps)-1], want.probed)
		}
		if last < members-members/want.probed {
			t.Errorf("%d members: the last to be probed is %d", members, last)
		}
		var said string
		for _, f := range fs {
			said += f.Meaning
		}
		wantSaid := ""
		if want.probed < members {
			wantSaid = fmt.Sprintf("%d of %d matches were probed: verify sends at most 256 packets", want.probed,
				members)
		}
		if said != wantSaid {
			t.Errorf("%d members: %q, want %q", members, said, wantSaid)
		}
	}
	if ps, fs := verify.Bound(nil); ps != nil || fs != nil {
		t.Errorf("nothing: %v %v", ps, fs)
	}
}

// TestAnswers checks the findings about unanswered probes, and the list of all probes.
func TestAnswers(t *testing.T) {
	probe := func(port uint16, to string, sent, accepted, refused int, errs ...string) verify.Probe {
		return verify.Probe{Lane: "web", Device: "d0",
			Match: &device.Match{Family: 4, Protocol: "tcp", LocalPort: port}, Protocol: "tcp",
			Remote: netip.AddrPortFrom(addr(to), 0), Sent: sent, Awaited: sent, Accepted: accepted, Refused: refused,
			Errors: errs}
	}
	def := verify.Probe{Lane: "default", Device: "d0", Protocol: "tcp", Remote: netip.AddrPortFrom(addr("10.0.0.2"), 0),
		Sent: 16, Awaited: 16, Refused: 15, Accepted: 1}
	udp := verify.Probe{Lane: "dns", Device: "d0", Match: &device.Match{Family: 4, Protocol: "udp", LocalPort: 53},
		Protocol: "udp", Remote: def.Remote, Sent: 4}
	ps := []verify.Probe{
		probe(80, "10.0.0.2", 16, 0, 16), probe(81, "10.0.0.2", 16, 0, 0), probe(82, "10.0.0.2", 16, 0, 0),
		probe(80, "10.0.0.3", 16, 0, 0), probe(80, "10.0.0.4", 3, 0, 0, "no route to host"),
		probe(80, "10.0.0.5", 0, 0, 0, "100% in use"),
		udp, def,
	}
	var got bytes.Buffer
	verify.WriteText(&got, verify.Answers(ps))
	verify.WriteProbes(&got, ps)
	want := `unknown  lane web on d0: probe of tcp4,port=81, tcp4,port=82 to 10.0.0.2: no answer to 32 packets, though other packets were answered: these or their answers are lost on the way
unknown  lane web on d0: probe of tcp4,port=80 to 10.0.0.3: no answer to 16 packets: there is no such host, or something on the way drops them
unknown  lane web on d0: probe of tcp4,port=80 to 10.0.0.4: no answer to 3 packets: no route to host
unknown  lane web on d0: probe of tcp4,port=80 to 10.0.0.5: nothing was sent: 100% in use
unknown  lane dns on d0: probe of udp4,port=53 to 10.0.0.2: 4 packets sent; an answer would go to the server, so verify did not wait for it
probe    lane web on d0: 48 packets to 10.0.0.2 (tcp4,port=80, tcp4,port=81, tcp4,port=82), 16 answered
probe    lane web on d0: 16 packets to 10.0.0.3 (tcp4,port=80), 0 answered
probe    lane web on d0: 3 packets to 10.0.0.4 (tcp4,port=80), 0 answered
probe    lane web on d0: 0 packets to 10.0.0.5 (tcp4,port=80), 0 answered
probe    lane dns on d0: 4 packets to 10.0.0.2 (udp4,port=53), 0 answered
probe    lane default on d0: 16 packets to 10.0.0.2 (traffic that no lane matches), 16 answered, 1 of them accepted
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnseen: sockets have received answers that the watching programs did not count. The number
// must be noted once for each lane.
func TestUnseen(t *testing.T) {
	to := netip.MustParseAddrPort("10.0.0.2:80")
	probes := func() []verify.Probe {
		return []verify.Probe{
			{Lane: "web", Device: "d0", Protocol: "udp", Remote: to, Sent: 4, Refused: 4},
			{Lane: "web", Device: "d0", Protocol: "tcp", Remote: to, Sent: 16, Refused: 15, Accepted: 1},
			{Lane: "web", Device: "d0", Protocol: "tcp", Remote: to, Sent: 16, Refused: 10},
			{Lane: "default", Device: "d0", Protocol: "tcp", Remote: to, Sent: 16, Refused: 16},
			{Lane: "web", Device: "d1", Protocol: "tcp", Remote: to, Sent: 16, Refused: 16},
		}
	}
	for _, c := range []struct {
		name string
		w    verify.Watched
		want []int
	}{
		{"all", verify.Watched{Device: "d0",
			Received: []verify.Cell{{Lane: "web", Packets: 20}, {Lane: "web", Queue: 1, Packets: 6}, {Packets: 17}}},
			[]int{0, 0, 0, 0, 0}},
		{"not all", verify.Watched{Device: "d0", Received: []verify.Cell{{Lane: "web", Packets: 24}, {Packets: 15}}},
			[]int{0, 2, 0, 1, 0}},
		{"handed over by native XDP", verify.Watched{Device: "d0", Received: []verify.Cell{{Packets: 16}},
			Handed: []verify.Cell{{Lane: "web", Packets: 25}}}, []int{0, 1, 0, 0, 0}},
	} {
		ps := probes()
		fs := []verify.Finding{{Lane: "web", Device: "d0", Part: device.PartSteering, Meaning: "is so"},
			{Lane: "web", Device: "d0", Part: device.PartSteering, Key: "xdp/d0"},
			{Lane: "web", Device: "d1", Part: device.PartSteering}}
		verify.Unseen(ps, c.w, fs)
		var got []int
		for _, p := range ps {
			got = append(got, p.Unseen)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		want := "is so"
		if n := c.want[1]; n > 0 {
			want = fmt.Sprintf("is so; %d of 26 answers were not seen as the lane's", n)
		}
		if fs[0].Meaning != want || fs[1].Meaning != "" || fs[2].Meaning != "" {
			t.Errorf("%s: %+v, want %q", c.name, fs, want)
		}
	}
}

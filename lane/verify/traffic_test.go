// SPDX-License-Identifier: Apache-2.0

package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

// said returns the printed findings about some parts of a lane, or about all if no part is given.
// The traffic was watched for two seconds.
func said(a verify.Applied, w verify.Watched, lane string, parts ...device.Part) string {
	w.For = 2 * time.Second
	var fs []verify.Finding
	for _, f := range verify.Traffic(a, w) {
		if f.Lane == lane && (len(parts) == 0 || slices.Contains(parts, f.Part)) {
			fs = append(fs, f)
		}
	}
	return text(fs)
}

// text returns findings as WriteText prints them.
func text(fs []verify.Finding) string {
	var b bytes.Buffer
	verify.WriteText(&b, fs)
	return b.String()
}

// wantText compares got with want. want may begin with an empty line.
func wantText(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// native sets the mode of the XDP programs to native.
func native(a verify.Applied) {
	for i, r := range a.Owned {
		if x, ok := r.Last.(device.XDP); ok {
			x.Mode = "native"
			a.Owned[i].Last = x
		}
	}
}

func TestMatches(t *testing.T) {
	a, _ := emulated(t, "two_lanes_ipv6")
	got := verify.Matches(a, "lane0")
	want := map[string][]device.Match{
		"redis": {
			{Family: 4, Protocol: "tcp", Local: "10.77.0.1/32", LocalPort: 6379},
			{Family: 6, Protocol: "tcp", Local: "fd00:77::1/128", LocalPort: 6379},
		},
		"web": {
			{Family: 4, Protocol: "tcp", LocalPort: 80}, {Family: 6, Protocol: "tcp", LocalPort: 80},
			{Family: 6, Protocol: "tcp", LocalPort: 443, Remote: "fd00:77::2/128"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := verify.Matches(a, "other0"); len(got) != 0 {
		t.Errorf("another device's: %v", got)
	}
}

// TestTraffic checks the findings about watched traffic. Lane redis has queues 2-3 and class
// 1:10, lane web has queues 4-6 and class 1:11.
func TestTraffic(t *testing.T) {
	redis := func(n uint64) verify.Watched {
		return verify.Watched{
			Received: []verify.Cell{{Lane: "redis", Queue: 2, Packets: n}, {Lane: "redis", Queue: 3, Packets: 1},
				{Queue: 0, Packets: 50}},
			Sent:    []verify.Cell{{Lane: "redis", Queue: 3, Packets: n}, {Queue: 1, Packets: 60}},
			Classed: []verify.Cell{{Lane: "redis", Class: "redis", Packets: n}, {Packets: 60}},
		}
	}
	for _, c := range []struct {
		name   string
		change func(w *verify.Watched)
		want   string
	}{
		{"proven", func(*verify.Watched) {}, `
ok       lane redis on lane0, steering: 101 packets of the lane arrived in receive queues 2-3, none elsewhere, no other packets there (2s)
ok       lane redis on lane0, mapper: 100 packets of the lane left by transmit queues 2-3, none elsewhere, no other packets there (2s)
ok       lane redis on lane0, bandwidth: 100 packets of the lane left in class 1:10, none elsewhere, no other packets there (2s)
`},
		{"foreign", func(w *verify.Watched) {
			w.Received = append(w.Received, verify.Cell{Queue: 2, Packets: 1},
				verify.Cell{Lane: "web", Queue: 3, Packets: 7})
			w.Classed = append(w.Classed, verify.Cell{Class: "redis", Packets: 3})
		}, `
drift    lane redis on lane0, steering: traffic
         want     no other packets in receive queues 2-3
         found    1 packet of no lane in queue 2, 7 packets of lane web in queue 3
         means    8 packets of others arrived there in 2s: they wait among the lane's packets, and the lane's poller works on them
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
drift    lane redis on lane0, bandwidth: traffic
         want     no other packets in class 1:10
         found    3 packets of no lane in the class of lane redis
         means    3 packets of others left there in 2s: they take the lane's bandwidth and rank
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
ok       lane redis on lane0, mapper: 100 packets of the lane left by transmit queues 2-3, none elsewhere, no other packets there (2s)
`},
		{"strayed", func(w *verify.Watched) {
			w.Received = append(w.Received, verify.Cell{Lane: "redis", Queue: 0, Packets: 99, Bare: 99})
			w.Sent = append(w.Sent, verify.Cell{Lane: "redis", Queue: 0, Packets: 5, Bare: 4})
			w.Classed = nil
		}, `
drift    lane redis on lane0, steering: traffic
         want     the lane's packets in receive queues 2-3 only
         found    99 of 200 elsewhere: queue 0
         means    99 packets of the lane arrived elsewhere in 2s: they wait among other packets, and the lane's poller never sees them
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
drift    lane redis on lane0, mapper: traffic
         want     the lane's packets in transmit queues 2-3 only
         found    5 of 105 elsewhere: queue 0
         means    5 packets of the lane left elsewhere in 2s: they wait behind other packets. A connection from before apply keeps its queue until none of its packets is on its way
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
unknown  lane redis on lane0, bandwidth: no traffic of the lane seen in 2s; no other packets there (class 1:10)
`},
		{"resets", func(w *verify.Watched) {
			w.Sent = append(w.Sent, verify.Cell{Lane: "redis", Queue: 0, Packets: 5, Bare: 5})
		}, `
ok       lane redis on lane0, steering: 101 packets of the lane arrived in receive queues 2-3, none elsewhere, no other packets there (2s)
ok       lane redis on lane0, mapper: 100 packets of the lane left by transmit queues 2-3, 5 without data elsewhere, no other packets there (2s)
ok       lane redis on lane0, bandwidth: 100 packets of the lane left in class 1:10, none elsewhere, no other packets there (2s)
`},
		{"opened only", func(w *verify.Watched) {
			w.Sent = []verify.Cell{{Lane: "redis", Queue: 0, Packets: 16, Bare: 16}}
		}, `
unknown  lane redis on lane0, mapper: 16 packets of the lane seen in 2s, none with data: a connection follows no receive queue before it has received a packet; no other packets there (transmit queues 2-3)
ok       lane redis on lane0, steering: 101 packets of the lane arrived in receive queues 2-3, none elsewhere, no other packets there (2s)
ok       lane redis on lane0, bandwidth: 100 packets of the lane left in class 1:10, none elsewhere, no other packets there (2s)
`},
		{"unread", func(w *verify.Watched) {
			w.Received = append(w.Received, verify.Cell{Lane: verify.LaneUnread, Queue: 2, Packets: 4},
				verify.Cell{Lane: verify.LaneUnread, Queue: 0, Packets: 4})
			w.Sent = nil
		}, `
unknown  lane redis on lane0, steering: the headers of 4 packets in receive queues 2-3 could not be read
unknown  lane redis on lane0, mapper: no traffic of the lane seen in 2s; no other packets there (transmit queues 2-3)
ok       lane redis on lane0, bandwidth: 100 packets of the lane left in class 1:10, none elsewhere, no other packets there (2s)
`},
		{"missed", func(w *verify.Watched) { w.Missed = 2 }, `
unknown  lane redis on lane0, steering: 2 packets were not looked at
unknown  lane redis on lane0, mapper: 2 packets were not looked at
unknown  lane redis on lane0, bandwidth: 2 packets were not looked at
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := emulated(t, "two_lanes_ipv6")
			w := redis(100)
			w.Device = "lane0"
			c.change(&w)
			wantText(t, c.want, said(a, w, "redis"))
		})
	}
}

// TestTrafficProcessors: the lanes have processors, by XDP and a cpumap. Both lanes have
// processor 1, which is memcached's only one.
func TestTrafficProcessors(t *testing.T) {
	for _, c := range []struct {
		name           string
		direct, handed []verify.Cell
		native         bool
		want           string
	}{
		{"proven", []verify.Cell{{Lane: "memcached", Queue: 0, Packets: 9}, {Queue: 0, Packets: 5}},
			[]verify.Cell{{Lane: "memcached", Queue: 1, Packets: 9}, {Lane: "dns", Queue: 1, Packets: 3}}, false, `
ok       lane memcached on lane0, steering: 9 packets of the lane arrived on processors 1, none elsewhere, no other packets there (2s)
`},
		{"lost", []verify.Cell{{Lane: "memcached", Queue: 0, Packets: 9}},
			[]verify.Cell{{Lane: "memcached", Queue: 1, Packets: 5}}, false, `
drift    lane memcached on lane0, steering: traffic
         want     the lane's packets on processors 1 only
         found    4 of 9 elsewhere: 4 packets handed to no processor
         means    4 packets of the lane arrived elsewhere in 2s: they wait among other packets, or were dropped because the queue to the processor was full
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`},
		{"native, some not handed", []verify.Cell{{Lane: "memcached", Queue: 0, Packets: 2}},
			[]verify.Cell{{Lane: "memcached", Queue: 1, Packets: 5}}, true, `
drift    lane memcached on lane0, steering: traffic
         want     the lane's packets on processors 1 only
         found    2 of 7 elsewhere: 2 packets handed to no processor
         means    2 packets of the lane arrived elsewhere in 2s: they wait among other packets, or were dropped because the queue to the processor was full
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`},
		{"wrong processor, foreign", nil,
			[]verify.Cell{{Lane: "memcached", Queue: 0, Packets: 5}, {Queue: 1, Packets: 2}}, true, `
drift    lane memcached on lane0, steering: traffic
         want     no other packets on processors 1
         found    2 packets of no lane on processor 1
         means    2 packets of others arrived there in 2s: they wait among the lane's packets, on the lane's processors
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
drift    lane memcached on lane0, steering: traffic
         want     the lane's packets on processors 1 only
         found    5 of 5 elsewhere: processor 0
         means    5 packets of the lane arrived elsewhere in 2s: they wait among other packets, or were dropped because the queue to the processor was full
         repair   fix the drift that is named here, if any; else niclane status lane0 and the flows (ss -tn) show the sender
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := emulated(t, "plain_two_lanes")
			if c.native {
				native(a)
			}
			w := verify.Watched{Device: "lane0", Direct: c.direct, Handed: c.handed}
			wantText(t, c.want, said(a, w, "memcached", device.PartSteering))
		})
	}
	a, _ := emulated(t, "plain_two_lanes")
	if diff := cmp.Diff(map[int]string{0: "default", 1: "memcached", 2: "dns"},
		verify.CPULanes(a, "lane0")); diff != "" {
		t.Errorf("CPULanes (-want +got):\n%s", diff)
	}
}

// TestTrafficChosen: if the classifier chooses the transmit queue, it does so also for packets
// without data.
func TestTrafficChosen(t *testing.T) {
	a, _ := emulated(t, "plain_two_lanes")
	w := verify.Watched{Device: "lane0", Sent: []verify.Cell{{Lane: "memcached", Queue: 0, Packets: 2, Bare: 2}}}
	got := said(a, w, "memcached", device.PartMapper)
	if !strings.HasPrefix(got, "drift ") || !strings.Contains(got, "found    2 of 2 elsewhere: queue 0") {
		t.Errorf("got:\n%s", got)
	}
}

// TestArrived: with generic XDP, packets are counted before they enter the cpumap. Arrived is
// false while packets are in it.
func TestArrived(t *testing.T) {
	for _, c := range []struct {
		name           string
		direct, handed uint64
		native, want   bool
	}{
		{"all", 5, 5, false, true},
		{"some on their way", 5, 4, false, false},
		{"more, that came after", 5, 6, false, true},
		{"native: seen when they come out", 5, 4, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := emulated(t, "plain_two_lanes")
			if c.native {
				native(a)
			}
			w := verify.Watched{Device: "lane0", Direct: []verify.Cell{{Lane: "dns", Packets: c.direct}, {Packets: 99}},
				Handed: []verify.Cell{{Lane: "dns", Queue: 1, Packets: c.handed}}}
			if got := verify.Arrived(a, w); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestTrafficWithoutEthernet: on a link without Ethernet headers, findings about sent packets
// must be unknown.
func TestTrafficWithoutEthernet(t *testing.T) {
	a, _ := emulated(t, "two_lanes_ipv6")
	a.State.Device("lane0").LinkType = "infiniband"
	cells := []verify.Cell{{Queue: 3, Packets: 100}}
	for _, f := range verify.Traffic(a, verify.Watched{Device: "lane0", For: time.Second, Sent: cells,
		Classed: cells}) {
		if f.Part != device.PartSteering &&
			(f.Severity != verify.Unknown || !strings.Contains(f.Meaning, "link type infiniband")) {
			t.Errorf("%+v", f)
		}
	}
}

// TestTrafficFragments: fragments may belong to a lane. That cannot be known, so the finding is
// unknown.
func TestTrafficFragments(t *testing.T) {
	a, _ := emulated(t, "two_lanes_ipv6")
	fs := verify.Traffic(a, verify.Watched{Device: "lane0", For: time.Second, Fragments: 7})
	if f := fs[len(fs)-1]; f.Severity != verify.Unknown || !strings.HasPrefix(f.Meaning,
		"7 fragments without ports came or went in 1s") {
		t.Errorf("%+v", f)
	}
}

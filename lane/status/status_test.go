// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
)

var fitted = []plan.FittedLane{
	{Name: "default", Device: "d0", Queues: []int{0, 1}, CPUs: []int{0, 1}, Class: "1:2", Rank: 7},
	{Name: "web", Device: "d0", Context: 1, Queues: []int{2}, CPUs: []int{1}, Class: "1:10", Rank: 1},
	{Name: "gone", Device: "d9", Queues: []int{0}, Rank: 1},
}

func state() *device.State {
	d := device.Device{Name: "d0"}
	for q := range 3 {
		d.NAPIs = append(d.NAPIs, device.NAPI{ID: uint32(100 + q), Config: device.NAPIConfig{Dev: "d0", Queue: q}})
	}
	d.NAPIs[2].PID, d.NAPIs[2].Thread = 77, &device.Thread{Dev: "d0", Queue: 2, Policy: "fifo", Priority: 47,
		CPUs: []int{1}}
	return &device.State{Devices: []device.Device{d}}
}

func counters(mono int64, n uint64) device.Counters {
	c := device.Counters{Device: "d0", Mono: mono, Source: "test"}
	for q := range 3 {
		c.Rx = append(c.Rx, device.QueueCounter{Queue: q, Packets: n * uint64(q+1), Bytes: 100 * n * uint64(q+1),
			Drops: n})
	}
	c.Classes = []device.ClassCounter{{ID: "1:10", Packets: n, Bytes: 100 * n, Backlog: 1500}}
	return c
}

func TestLanes(t *testing.T) {
	samples := map[string]status.Sample{"d0": {Applied: counters(0, 10), Before: counters(1e9, 20),
		Now: counters(15e8, 30)}}
	lanes := status.Lanes(fitted, state(), samples)
	sent := status.Sample{SentBefore: map[status.LaneQueue]device.QueueCounter{{Lane: "web", Queue: 0}: {Packets: 1,
		Bytes: 100}},
		SentNow: map[status.LaneQueue]device.QueueCounter{{Lane: "web", Queue: 0}: {Packets: 3, Bytes: 300}}}
	sent.Before.Mono, sent.Now.Mono = 1e9, 2e9
	of := status.Lanes(fitted, state(), map[string]status.Sample{"d0": sent})
	if diff := cmp.Diff([]status.Row{{Device: "d0", Lane: "web", What: "sent", Number: 0, Owner: "default",
		Tx: &status.Rate{Packets: 2, Bytes: 200}}}, of[1].Sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	var text bytes.Buffer
	if err := status.WriteText(&text, of[1:2]); err != nil ||
		!bytes.Contains(text.Bytes(), []byte("sent 0 of default        -      -      -          2     0.0        -")) {
		t.Errorf("%v, and\n%s", err, &text)
	}
	// The default lane has queues 0 and 1, which count n and 2n. Since the apply, that is 3 × (30 −
	// 10); in the last half second, 3 × (30 − 20), so 60 per second.
	want := &status.Traffic{Packets: 60, Bytes: 6000, Drops: 40, PacketsPerSecond: 60, BytesPerSecond: 6000,
		DropsPerSecond: 40}
	if diff := cmp.Diff(want, lanes[0].Rx); diff != "" {
		t.Errorf("default lane's rx (-want +got):\n%s", diff)
	}
	if lanes[0].Tx != nil {
		t.Errorf("tx is not counted, but is %v", lanes[0].Tx)
	}
	if lanes[0].ClassTx != nil {
		t.Errorf("class 1:2 has no counters, but %v", lanes[0].ClassTx)
	}
	if got := lanes[1].ClassTx; got == nil || got.Packets != 20 || lanes[1].Backlog != 1500 {
		t.Errorf("class 1:10: %v, backlog %d, want 20 packets and 1500", got, lanes[1].Backlog)
	}
	if n := lanes[1].NAPIs; len(n) != 1 || n[0].ID != 102 || n[0].PID != 77 {
		t.Errorf("NAPIs of queue 2: %+v", n)
	}
	if lanes[2].Rx != nil || lanes[2].NAPIs != nil {
		t.Errorf("a device that is gone counts %+v", lanes[2])
	}
}

// TestReset: if a counter is lower than before, it was reset and counts from zero.
func TestReset(t *testing.T) {
	samples := map[string]status.Sample{"d0": {Applied: counters(0, 100), Before: counters(1e9, 100),
		Now: counters(2e9, 5)}}
	if got := status.Lanes(fitted[1:2], state(), samples)[0].Rx; got.Packets != 15 || got.PacketsPerSecond != 15 {
		t.Errorf("after a reset: %+v, want 15 packets", got)
	}
}

func TestWriteText(t *testing.T) {
	samples := map[string]status.Sample{"d0": {Now: counters(1e9, 10)}}
	var got bytes.Buffer
	lanes := status.Lanes(fitted[:2], state(), samples)
	lanes[1].Members = status.Members(&intent.Lane{Members: []intent.Member{
		{Protocol: "tcp", Ports: []uint16{80, 8000, 8001, 8002}, Addrs: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::/8")}},
		{Protocol: "udp", RemotePorts: []uint16{53}, RemoteAddrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Cgroup: "/g"},
		{Protocol: "tcp", Ports: []uint16{1}}, {Protocol: "tcp", Ports: []uint16{2}},
	}})
	if err := status.WriteText(&got, lanes); err != nil {
		t.Fatal(err)
	}
	const web = "tcp 80,8000-8002 at 10.0.0.1,fd00::/8; udp with remote 53 with 10.0.0.0/8 of /g; 2 more"
	want := `DEVICE  LANE     MEMBERS` + strings.Repeat(" ", len(web)-5) + `RANK  QUEUES  CPUS  NAPIS    POLLED BY
d0      default  -` + strings.Repeat(" ", len(web)+1) + `7     0-1     0-1   100,101  2 × softirq
d0      web      ` + web + `  1     2       1     102      thread, SCHED_FIFO 47, CPUs 1

  DEVICE     LANE              PACKETS  BYTES  DROPS  PACKETS/S  MBIT/S  DROPS/S
      d0  default          rx       30   3000     20         30     0.0       20
      d0      web          rx       30   3000     10         30     0.0       10
      d0      web  class 1:10       10   1000      0         10     0.0        0
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWriteMarks: the table has columns DSCP and PCP if a lane has one.
func TestWriteMarks(t *testing.T) {
	lanes := status.Lanes(fitted[:2], state(), nil)
	lanes[1].DSCP, lanes[1].PCP = "ef", "5"
	var got bytes.Buffer
	if err := status.WriteText(&got, lanes); err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(got.String(), "\n\n")
	want := `DEVICE  LANE     MEMBERS  RANK  DSCP  PCP  QUEUES  CPUS  NAPIS    POLLED BY
d0      default  -        7     -     -    0-1     0-1   100,101  2 × softirq
d0      web      -        1     ef    5    2       1     102      thread, SCHED_FIFO 47, CPUs 1`
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

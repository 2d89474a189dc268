// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
)

// driven returns a state in which the driver polls queues 1 and 2, by the NAPI of queue 1.
func driven() *device.State {
	st := state()
	d := &st.Devices[0]
	d.Qdiscs = []device.QdiscState{{Qdisc: device.Qdisc{Dev: "d0", Parent: "root", Type: "mqprio",
		Mode: device.ModeChannel, Queues: "1@0 2@1"}}}
	d.DriverParams = []device.DriverParam{{Dev: "d0", Name: "tc1_qps_per_poller", Value: "2"},
		{Dev: "d0", Name: "tc1_poller_timeout", Value: "500"}}
	d.NAPIs[1].PID, d.NAPIs[1].Thread = 77, &device.Thread{Dev: "d0", Queue: 1, Policy: "other", CPUs: []int{0, 1}}
	d.NAPIs[2].PID = 78
	return st
}

// TestDriverPollers shows the driver's pollers, with and without kernel threads. The NAPI of queue 2 is
// idle, although it has a thread too.
func TestDriverPollers(t *testing.T) {
	lane := fitted[1]
	lane.Queues = []int{1, 2}
	without := driven()
	for i := range without.Devices[0].NAPIs {
		without.Devices[0].NAPIs[i].PID, without.Devices[0].NAPIs[i].Thread = 0, nil
	}
	off := driven()
	off.Devices[0].DriverParams[1].Value = "0"
	for _, tt := range []struct {
		name        string
		st          *device.State
		want, rates string
	}{
		{"threads", driven(), "driver's poller of 2 queues, thread, nice 0, CPUs 0-1, stops after 500 jiffies",
			"driver's thread 77 S"},
		{"ksoftirqd", without, "driver's poller of 2 queues, in ksoftirqd, stops after 500 jiffies", "driver"},
		{"no timeout, so no poller", off, "thread, nice 0, CPUs 0-1; thread, SCHED_FIFO 47, CPUs 1", "thread 78"},
	} {
		var text, rates bytes.Buffer
		must.Do(t, status.WriteText(&text, status.Lanes([]plan.FittedLane{lane}, tt.st, nil)))
		if !strings.Contains(text.String(), "  "+tt.want+"\n") {
			t.Errorf("%s: want %q in\n%s", tt.name, tt.want, text.String())
		}
		rows := status.Rates([]plan.FittedLane{lane}, tt.st, moment(1e9, 100), moment(15e8, 150), 5e8)
		must.Do(t, status.WriteRates(&rates, rows))
		lines := strings.Split(strings.TrimSpace(rates.String()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, "  "+tt.rates+"  ") {
			t.Errorf("%s: want %q in\n%s", tt.name, tt.rates, rates.String())
		}
	}
}

// TestPolled shows the driver's counters of packets by what polled them.
func TestPolled(t *testing.T) {
	count := func(n uint64) device.Counters {
		return device.Counters{Polled: []device.PolledCounter{{Queue: 0, BusyPoll: 9 * n, NAPI: 9 * n},
			{Queue: 1, BusyPoll: n, NAPI: 2 * n}, {Queue: 2, BusyPoll: n, NAPI: 3 * n}}}
	}
	lane := fitted[1]
	lane.Queues = []int{1, 2}
	for _, tt := range []struct {
		applied, now uint64
		want         status.Polled
	}{
		{10, 30, status.Polled{BusyPoll: 40, NAPI: 100}},
		{30, 10, status.Polled{BusyPoll: 20, NAPI: 50}}, // they were reset
	} {
		sample := status.Sample{Applied: count(tt.applied), Now: count(tt.now)}
		lanes := status.Lanes([]plan.FittedLane{lane}, driven(), map[string]status.Sample{"d0": sample})
		if diff := cmp.Diff(&tt.want, lanes[0].Polled); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	var text bytes.Buffer
	lanes := status.Lanes([]plan.FittedLane{lane}, driven(), map[string]status.Sample{"d0": {Now: count(1)}})
	must.Do(t, status.WriteText(&text, lanes))
	const want = "    d0   web                        2        5\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("want %q in\n%s", want, text.String())
	}
}

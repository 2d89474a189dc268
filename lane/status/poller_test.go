// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/status"
)

// polled returns the state with a process of niclane in place of the kernel's polling thread.
func polled(doing string) *device.State {
	st := state()
	d := &st.Devices[0]
	d.NAPIs[2].PID, d.NAPIs[2].Thread = 0, nil
	d.Pollers = []device.PollerState{{
		Poller: device.Poller{Dev: "d0", Queues: []int{2}, CPUs: []int{1}, Policy: "other", Nice: 5, Timeout: 1e7},
		PID:    76, Thread: 77, Doing: doing, NAPIs: []uint32{102}, Polls: 9, Packets: 8, OthersPackets: 7, Sleeps: 6,
	}}
	return st
}

func TestPoller(t *testing.T) {
	lanes := status.Lanes(fitted[:2], polled(device.PollerAsleep), nil)
	if p := lanes[1].NAPIs[0].Poller; p == nil || p.PID != 76 {
		t.Errorf("poller of queue 2: %+v", p)
	}
	var text bytes.Buffer
	if err := status.WriteText(&text, lanes); err != nil {
		t.Fatal(err)
	}
	const want = "process 76 (asleep), nice 5, CPUs 1: 9 polls, 8 packets, 7 by others, asleep 6 times\n"
	if !strings.Contains(text.String(), want) {
		t.Errorf("want %q in\n%s", want, text.String())
	}
	rows := status.Rates(fitted[1:2], polled(device.PollerPolling), moment(1e9, 100), moment(15e8, 150), 5e8)
	last := rows[len(rows)-1]
	if p := last.Poller; p == nil || p.PID != 77 || p.Doing != device.PollerPolling || p.CPU != 0.1 {
		t.Errorf("rates of the poller's thread: %+v", p)
	}
	text.Reset()
	if err := status.WriteRates(&text, rows); err != nil || !strings.Contains(text.String(),
		"poller 77 polling  10%     400+100") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

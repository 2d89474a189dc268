// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
)

const interrupts = `           CPU0       CPU1
  24:          1         40  IO-APIC   5-edge      ACPI:Ged
  41:        100          5  PCI-MSIX-0000:00:01.0   0-edge      d0-TxRx-2
 NMI:          7          7   Non-maskable interrupts
`

func TestParseInterrupts(t *testing.T) {
	if diff := cmp.Diff(map[int]uint64{24: 41, 41: 105}, status.ParseInterrupts(interrupts)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := status.ParseInterrupts("24: 1 2 x\n"); len(got) != 0 {
		t.Errorf("without the line of processors: %v", got)
	}
}

func TestParseThread(t *testing.T) {
	text := "Name:\tnapi/d0-102\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"
	got, err := status.ParseThread(text, "5000000 7 1\n")
	if diff := cmp.Diff(status.Thread{State: "S", Voluntary: 12, Involuntary: 3, CPU: 5e6}, got); diff != "" ||
		err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, c := range map[string][2]string{
		"empty":     {"", "1 2 3"},
		"schedstat": {text, ""},
		"switches":  {"State:\tS\nvoluntary_ctxt_switches:\tmany\n", "1 2 3"},
	} {
		if got, err := status.ParseThread(c[0], c[1]); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(interrupts, "State:\tR (running)\nvoluntary_ctxt_switches:\t1", "1 2 3")
	f.Fuzz(func(t *testing.T, irqs, text, sched string) {
		for n := range status.ParseInterrupts(irqs) {
			if n < 0 {
				t.Errorf("IRQ %d", n)
			}
		}
		if th, err := status.ParseThread(text, sched); err == nil && th.State == "" {
			t.Error("a thread without a state")
		}
	})
}

func moment(mono int64, n uint64) status.Moment {
	return status.Moment{
		Counters:   map[string]device.Counters{"d0": counters(mono, n)},
		Arrived:    map[string]map[string]device.QueueCounter{"d0": {"web": {Packets: 7 * n, Bytes: 700 * n}}},
		Interrupts: map[int]uint64{41: 3 * n, 42: 1000 * n},
		Threads:    map[int]status.Thread{77: {State: "S", Voluntary: 4 * n, Involuntary: n, CPU: n * 1e6}},
	}
}

// TestRates: between two moments half a second apart, every counter grows by 50.
func TestRates(t *testing.T) {
	st := state()
	st.Devices[0].IRQs = []device.IRQ{{Number: 41, Name: "d0-TxRx-2", Queue: 2},
		{Number: 42, Name: "d0-misc", Queue: -1}}
	var got bytes.Buffer
	rows := status.Rates(fitted, st, moment(1e9, 100), moment(15e8, 150), 5e8)
	if err := status.WriteRates(&got, rows); err != nil {
		t.Fatal(err)
	}
	want := `  DEVICE     LANE           RX/S  MBIT/S  DROPS/S  TX/S  MBIT/S  DROPS/S  IRQ/S    POLLED BY  CPU  SWITCHES/S
      d0  default            300     0.2      200     -       -        -      -            -    -           -
      d0  default  queue 0   100     0.1      100     -       -        -      -      softirq    -           -
      d0  default  queue 1   200     0.2      100     -       -        -      -      softirq    -           -
      d0      web            300     0.2      100     -       -        -      -            -    -           -
      d0      web      xdp   700     0.6        0     -       -        -      -            -    -           -
      d0      web    class     -       -        -   100     0.1        0      -            -    -           -
      d0      web  queue 2   300     0.2      100     -       -        -    300  thread 77 S  10%     400+100
      d9     gone              -       -        -     -       -        -      -            -    -           -
      d9     gone  queue 0     -       -        -     -       -        -      -            -    -           -
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRatesRestart: a thread that has just begun has a rate of 0. If a thread's counters are
// lower than before, they count from zero.
func TestRatesRestart(t *testing.T) {
	st := state()
	rows := func(before, now status.Moment) *status.Poller {
		rs := status.Rates([]plan.FittedLane{fitted[1]}, st, before, now, 1e9)
		return rs[len(rs)-1].Poller
	}
	fresh := moment(0, 10)
	fresh.Threads = nil
	if p := rows(fresh, moment(1e9, 20)); p == nil || p.CPU != 0 || p.Voluntary != 0 || p.State != "S" {
		t.Errorf("just begun: %+v", p)
	}
	if p := rows(moment(0, 20), moment(1e9, 10)); p == nil || p.Voluntary != 40 {
		t.Errorf("begun anew: %+v", p)
	}
	if p := rows(moment(0, 20), fresh); p == nil || p.PID != 77 || p.State != "" {
		t.Errorf("gone: %+v", p)
	}
}

// TestRatesProcessors: a lane that is made by XDP has processors, and shares the receive queues
// with all lanes.
func TestRatesProcessors(t *testing.T) {
	st := state()
	st.Devices[0].IRQs = []device.IRQ{{Number: 41, Name: "d0-TxRx-2", Queue: 2}}
	before, now := moment(0, 100), moment(1e9, 150)
	now.Handlers = map[string]map[int]int{"d0": {1: 77}}
	var got bytes.Buffer
	if err := status.WriteRates(&got, status.Rates(fitted[1:2], st, before, now, 1e9)); err != nil {
		t.Fatal(err)
	}
	want := `  DEVICE  LANE               RX/S  MBIT/S  DROPS/S  TX/S  MBIT/S  DROPS/S  IRQ/S    POLLED BY  CPU  SWITCHES/S
      d0   web                150     0.1       50     -       -        -      -            -    -           -
      d0   web          xdp   350     0.3        0     -       -        -      -            -    -           -
      d0   web        class     -       -        -    50     0.0        0      -            -    -           -
      d0   web      queue 2   150     0.1       50     -       -        -      -            -    -           -
      d0   web  processor 1     -       -        -     -       -        -      -  thread 77 S   5%      200+50
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRatesByLane checks the rows of a lane's packets in each queue, including queues of other
// lanes.
func TestRatesByLane(t *testing.T) {
	at := func(lane string, queue int) status.LaneQueue { return status.LaneQueue{Lane: lane, Queue: queue} }
	before, now := moment(0, 0), moment(1e9, 0)
	before.Sent = map[string]map[status.LaneQueue]device.QueueCounter{"d0": {at("web", 2): {Packets: 5, Bytes: 500},
		at("web", 0): {Packets: 3, Bytes: 3}}}
	now.Sent = map[string]map[status.LaneQueue]device.QueueCounter{"d0": {
		at("web", 2): {Packets: 15, Bytes: 1500}, at("web", 0): {Packets: 3, Bytes: 3},
		at("web", 7): {Packets: 1, Bytes: 1}, at("default", 2): {Packets: 4, Bytes: 400},
		at("web", status.AnyQueue): {Packets: 6, Bytes: 600},
	}}
	now.Received = map[string]map[status.LaneQueue]device.QueueCounter{"d0": {at("web", 1): {Packets: 2, Bytes: 200}}}
	var got []status.Row
	for _, r := range status.Rates(fitted, state(), before, now, 1e9) {
		if r.What == "sent" || r.What == "received" {
			got = append(got, r)
		}
	}
	want := []status.Row{
		{Device: "d0", Lane: "default", What: "sent", Number: 2, Owner: "web",
			Tx: &status.Rate{Packets: 4, Bytes: 400}},
		{Device: "d0", Lane: "web", What: "received", Number: 1, Rx: &status.Rate{Packets: 2, Bytes: 200}},
		{Device: "d0", Lane: "web", What: "sent", Number: status.AnyQueue, Tx: &status.Rate{Packets: 6, Bytes: 600}},
		{Device: "d0", Lane: "web", What: "sent", Number: 2, Tx: &status.Rate{Packets: 10, Bytes: 1000}},
		{Device: "d0", Lane: "web", What: "sent", Number: 7, Tx: &status.Rate{Packets: 1, Bytes: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var text bytes.Buffer
	if err := status.WriteRates(&text, got[:1]); err != nil {
		t.Fatal(err)
	}
	if want := "sent 2 of web"; !bytes.Contains(text.Bytes(), []byte(want)) {
		t.Errorf("no %q in\n%s", want, &text)
	}
}

// TestByClass: if the card has HTB classes, a lane's packets do not use the transmit queues of
// its channels. Only its class counts them.
func TestByClass(t *testing.T) {
	lane := plan.FittedLane{Name: "web", Device: "d0", Queues: []int{0}, Class: "1:10"}
	for _, offload := range []bool{false, true} {
		st := &device.State{Devices: []device.Device{{Name: "d0",
			Qdiscs: []device.QdiscState{{Qdisc: device.Qdisc{Dev: "d0", Parent: "root", Type: "htb", Handle: "1:",
				Offload: offload}}}}}}
		count := func(n uint64) device.Counters {
			queue := []device.QueueCounter{{Queue: 0, Packets: n}}
			return device.Counters{Mono: int64(n), Rx: queue, Tx: queue,
				Classes: []device.ClassCounter{{ID: "1:10", Packets: n}}}
		}
		was, is := count(1), count(2)
		l := status.Lanes([]plan.FittedLane{lane}, st, map[string]status.Sample{"d0": {Before: was, Now: is}})[0]
		if l.Rx == nil || (l.Tx == nil) != offload || l.ClassTx == nil {
			t.Errorf("offload %v: rx %v, tx %v, class %v", offload, l.Rx, l.Tx, l.ClassTx)
		}
		at := func(c device.Counters) status.Moment {
			return status.Moment{Counters: map[string]device.Counters{"d0": c}}
		}
		for _, r := range status.Rates([]plan.FittedLane{lane}, st, at(was), at(is), 1) {
			if r.What != "class" && (r.Rx == nil || (r.Tx == nil) != offload) || r.What == "class" && r.Tx == nil {
				t.Errorf("offload %v, %s: rx %v, tx %v", offload, r.What, r.Rx, r.Tx)
			}
		}
	}
}

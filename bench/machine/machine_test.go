// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
)

func take(t *testing.T, c Config) *Snapshot {
	t.Helper()
	s, err := Take(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProcess: the processor time of this process is counted while one of its threads is busy.
func TestProcess(t *testing.T) {
	c := Config{Processes: map[string]int{"self": os.Getpid()}}
	before := take(t, c)
	var used unix.Rusage
	for used.Utime.Sec*1000+used.Utime.Usec/1000 < 60 {
		for range 100_000 {
			runtime.KeepAlive(used)
		}
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
			t.Fatal(err)
		}
	}
	d, err := take(t, c).Since(before)
	if err != nil {
		t.Fatal(err)
	}
	p := d.Processes[0]
	if p.Name != "self" || p.PID != os.Getpid() || p.Threads < 2 || p.Running < 20e6 || p.Running > 10*d.Duration {
		t.Errorf("%+v in %d ns", p, d.Duration)
	}
	if len(d.CPUs) == 0 || d.ContextSwitches == 0 || d.Interrupts == 0 || d.SoftIRQs.All == 0 || d.Duration <= 0 {
		t.Errorf("of the host: %+v", d)
	}
	var sum int64
	for _, cpu := range d.CPUs {
		sum += cpu.User + cpu.System + cpu.IRQ + cpu.SoftIRQ + cpu.Steal + cpu.Idle
	}
	if all := float64(sum) / float64(d.Duration) / float64(len(d.CPUs)); all < 0.5 || all > 1.5 {
		t.Errorf("the processors' times add up to %.2f of the time", all)
	}
	if got := p.CPUPerRequest(1000); int64(got) != p.Running/1000 {
		t.Errorf("%v for each of 1000, of %d ns", got, p.Running)
	}
	if p.CPUPerRequest(0) != 0 {
		t.Error("time for no request")
	}
}

// TestNamespace: the counters of UDP and of the device are those of the calling thread's network
// namespace.
func TestNamespace(t *testing.T) {
	vethtest.Run(t, 2, func(t *testing.T) {
		c := Config{Device: vethtest.Dev}
		before := take(t, c)
		server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		b := make([]byte, 8)
		for range 7 {
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		d, err := take(t, c).Since(before)
		if err != nil {
			t.Fatal(err)
		}
		if d.UDP.OutDatagrams != 7 || d.UDP.InDatagrams != 7 {
			t.Errorf("%+v, want 7 in and out", d.UDP)
		}
		if d.Device == nil || d.Device.Name != vethtest.Dev {
			t.Errorf("device %+v", d.Device)
		}
	})
}

func TestGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(Config{Processes: map[string]int{"true": cmd.ProcessState.Pid()}}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("%v, want that it does not exist", err)
	}
	if _, err := Take(Config{Device: "none0"}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v, want ENODEV", err)
	}
	p := map[string]process{"p": {start: 1}}
	q := map[string]process{"p": {start: 2}}
	if _, err := (&Snapshot{processes: q}).Since(&Snapshot{processes: p}); !errors.Is(err, errAnother) {
		t.Errorf("%v, want that it is another", err)
	}
}

func TestDifferences(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	before := &Snapshot{
		softnet: []procfs.SoftnetStat{{Index: 0, Processed: math.MaxUint32 - 1, Dropped: 5}, {Index: 3}},
		device: &device.Counters{Device: "d0", Rx: []device.QueueCounter{{Queue: 0, Packets: 10}},
			Classes: []device.ClassCounter{{ID: "1:10", Packets: 4, Bytes: 100}}},
		processes: map[string]process{"p": {user: 1,
			threads: map[int]threadUse{7: {running: 100, waiting: 10, voluntary: 1}, 8: {running: 1e9}}}},
	}
	now := &Snapshot{
		softnet: []procfs.SoftnetStat{{Index: 0, Processed: 3, Dropped: 7}, {Index: 1, Processed: 9}},
		device: &device.Counters{Device: "d0",
			Rx: []device.QueueCounter{{Queue: 0, Packets: 15}, {Queue: 1, Packets: 99}},
			Classes: []device.ClassCounter{{ID: "1:10", Packets: 6, Bytes: 300, Backlog: 50},
				{ID: "1:11", Packets: 1}}},
		processes: map[string]process{"p": {user: 1.25,
			threads: map[int]threadUse{7: {running: 150, waiting: 30, voluntary: 4},
				9: {running: 1000, involuntary: 2}}}},
	}
	lanes := []LaneQueues{{Name: "a", Rx: []int{0}, Tx: []int{0}, Class: "1:10"}, {Name: "default", Tx: []int{9}}}
	before.polls = []napi.Count{{NAPI: 7, Polls: 10, Packets: 100, Empty: 1, Full: 2, Thread: 3, Busy: 4},
		{NAPI: 8, Polls: 5}}
	now.polls = []napi.Count{{NAPI: 7, Polls: 30, Packets: 150, Empty: 2, Full: 4, Thread: 6, Busy: 8},
		{NAPI: 8, Polls: 5}, {NAPI: 9, Polls: 1, Packets: 2}}
	before.snmp.RetransSegs, now.snmp.RetransSegs = f(3), f(10)
	now.netstat.BusyPollRxPackets = f(4) // not known before
	d, err := now.Since(before)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Softnet) != 1 || d.Softnet[0] != (Softnet{Processed: 5, Dropped: 2}) {
		t.Errorf("softnet %+v, want 5 processed, after a wrap, and 2 dropped", d.Softnet)
	}
	if len(d.Device.Rx) != 1 || d.Device.Rx[0].Packets != 5 {
		t.Errorf("queues %+v, want 5 packets in the one that was there before", d.Device.Rx)
	}
	if want := (device.ClassCounter{ID: "1:10", Packets: 2, Bytes: 200, Backlog: 50}); len(d.Device.Classes) != 1 ||
		d.Device.Classes[0] != want {
		t.Errorf("classes %+v, want %+v", d.Device.Classes, want)
	}
	if want := []napi.Count{{NAPI: 7, Polls: 20, Packets: 50, Empty: 1, Full: 2, Thread: 3, Busy: 4},
		{NAPI: 9, Polls: 1, Packets: 2}}; !slices.Equal(d.NAPIs, want) {
		t.Errorf("polls %+v, want %+v", d.NAPIs, want)
	}
	d.Tell(lanes)
	if a := d.Lanes[0]; len(d.Lanes) != 2 || a.Name != "a" || a.Rx == nil || *a.Rx != (Traffic{Packets: 5}) ||
		a.Tx != nil || a.Class == nil || *a.Class != (Traffic{2, 200, 0}) {
		t.Errorf("lanes %+v", d.Lanes)
	}
	if b := d.Lanes[1]; b.Rx != nil || b.Class != nil {
		t.Errorf("a lane without receive queues and class: %+v", b)
	}
	if want := (Process{Name: "p", Threads: 2, User: 250e6, Running: 1050, Waiting: 20, Voluntary: 3,
		Involuntary: 2}); d.Processes[0] != want {
		t.Errorf("process %+v, want %+v", d.Processes[0], want)
	}
	if d.TCP.Retransmits != 7 || d.TCP.BusyPolled != 0 {
		t.Errorf("TCP %+v", d.TCP)
	}
}

func TestDescribe(t *testing.T) {
	h := Describe()
	if h.CPUs != runtime.NumCPU() || h.Memory < 1<<20 || !strings.HasPrefix(h.Kernel, kernelRelease(t)) ||
		h.CPUModel == "" || h.Sysctls["net.core.somaxconn"] == "" {
		t.Errorf("%+v", h)
	}
}

func kernelRelease(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestCards: the counters of several cards are those of each card, and of all of them together. Queues
// of the same number of two cards are two queues.
func TestCards(t *testing.T) {
	counters := func(name string, packets uint64) device.Counters {
		return device.Counters{Device: name, Source: "x",
			Rx:      []device.QueueCounter{{Queue: 0, Packets: packets, Bytes: 10 * packets}, {Queue: 1, Packets: 1}},
			Tx:      []device.QueueCounter{{Queue: 0, Packets: 2 * packets}},
			Classes: []device.ClassCounter{{ID: "1:2", Packets: packets}}}
	}
	snapshot := func(a, b uint64) *Snapshot {
		first := counters("eth0", a)
		return &Snapshot{device: &first, cards: []device.Counters{first, counters("eth1", b)}}
	}
	d, err := snapshot(107, 203).Since(snapshot(100, 200))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Cards) != 2 || d.Device.Name != "eth0+eth1" || len(d.Device.Rx) != 4 {
		t.Fatalf("%d cards, together %+v", len(d.Cards), d.Device)
	}
	d.Tell([]LaneQueues{{Name: "a", Device: "eth0", Rx: []int{0}, Class: "1:2"},
		{Name: "a", Device: "eth1", Rx: []int{0, 1}, Class: "1:2"}, {Name: "b", Device: "eth1", Tx: []int{0}}})
	want := []Lane{{Name: "a", Rx: &Traffic{Packets: 10, Bytes: 100}, Class: &Traffic{Packets: 10}},
		{Name: "b", Tx: &Traffic{Packets: 6}}}
	if diff := cmp.Diff(want, d.Lanes); diff != "" {
		t.Errorf("together (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Lane{{Name: "a", Rx: &Traffic{Packets: 7, Bytes: 70}, Class: &Traffic{Packets: 7}}},
		d.Cards[0].Lanes); diff != "" {
		t.Errorf("eth0 (-want +got):\n%s", diff)
	}
	if n := len(d.Cards[1].Lanes); n != 2 {
		t.Errorf("%d lanes of eth1", n)
	}
}

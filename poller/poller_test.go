// SPDX-License-Identifier: Apache-2.0

package poller_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/poller"
)

// TestMain lets the test binary also act as a poller, or as a process that starts one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == poller.Command || os.Args[1] == starterArg) {
		var err error
		switch os.Args[1] {
		case poller.Command:
			if len(os.Args) == 4 {
				impostor(os.Args[3])
			}
			go collect()
			err = poller.Main(os.Args[2])
		case starterArg:
			err = starter(os.Args[2])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client.RunDir = dir
	code := m.Run()
	// All pollers have ended, so the run directory must be empty.
	if err := os.Remove(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// collect runs garbage collections all the time. So a test has more of them than a real poller has
// in years.
func collect() {
	for {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

const queues = 4

// client starts pollers that end together with the test process.
var client = poller.Client{Tied: true}

// run runs f in a network namespace with a veth that uses NAPIs. It skips the test if io_uring
// cannot poll NAPIs on this host.
func run[T testing.TB](t T, f func(t T, et *ethtool.Client)) {
	vethtest.HoldIOUring(t)
	r, err := iouring.New(time.Millisecond)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	must.Do(t, err)
	r.Close()
	vethtest.Run(t, queues, func(t T) {
		et, err := ethtool.Open()
		must.Do(t, err)
		defer et.Close()
		gro(t, et, vethtest.Dev, true)
		defer endAll(t)
		f(t, et)
	})
}

// endAll ends all pollers.
func endAll(t testing.TB) {
	t.Helper()
	all, err := poller.List(client.RunDir)
	if err != nil {
		t.Error(err)
	}
	// Write also removes sockets that ended pollers have left. So call it even if there is no poller:
	// for one without queues, which cannot exist.
	for _, s := range append(all, device.PollerState{Poller: object()}) {
		if err := client.Write(s.Poller, nil); err != nil {
			t.Error(err)
		}
	}
}

// gro turns GRO on or off on a veth, which creates or removes its NAPIs.
func gro(t testing.TB, et *ethtool.Client, dev string, on bool) {
	t.Helper()
	if err := et.SetFeature(device.Feature{Dev: dev, Name: "rx-gro", On: on}); err != nil {
		t.Error(err)
	}
}

// eventually waits up to 20 s until f returns true.
func eventually(t testing.TB, what string, f func() bool) bool {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if f() {
			return true
		}
	}
	t.Errorf("within 20 s not: %s", what)
	return false
}

func object(queues ...int) device.Poller {
	return device.Poller{Dev: vethtest.Dev, Queues: queues, CPUs: []int{0}, Policy: "other", Nice: 19, Timeout: 1e6}
}

// state returns the state of a poller, the zero value if there is none.
func state(t testing.TB, p device.Poller) device.PollerState {
	t.Helper()
	all, err := poller.List(client.RunDir)
	if err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if s.Key() == p.Key() {
			return s
		}
	}
	return device.PollerState{}
}

// wantNone checks that a poller is not running.
func wantNone(t testing.TB, p device.Poller, when string) {
	t.Helper()
	if got, err := client.Read(p); got != nil || err != nil {
		t.Errorf("%s: %v, %v", when, got, err)
	}
}

// gone waits until a poller has ended.
func gone(t testing.TB, p device.Poller, what string) {
	t.Helper()
	eventually(t, what, func() bool { got, err := client.Read(p); return got == nil && err == nil })
}

func TestRoundTrip(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(1, 2)
		wantNone(t, p, "before")
		begin(t, p)
		got, err := client.Read(p)
		if diff := cmp.Diff(device.Object(p), got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		first := state(t, p)
		if len(first.NAPIs) != 2 {
			t.Errorf("polls NAPIs %v, want two", first.NAPIs)
		}
		eventually(t, "it has polled", func() bool { return state(t, p).Polls > 0 })
		eventually(t, "without packets it sleeps", func() bool { return state(t, p).Doing == device.PollerAsleep })
		changed := p
		changed.Timeout = 5e6
		if err := client.Write(p, changed); err != nil {
			t.Error(err)
		}
		if now := state(t, p); now.Timeout != 5e6 || now.PID == first.PID {
			t.Errorf("after a change: %+v", now)
		}
		if err := client.Write(changed, nil); err != nil {
			t.Error(err)
		}
		wantNone(t, p, "after the end")
		if err := client.Write(p, nil); err != nil {
			t.Errorf("ending one that is not there: %v", err)
		}
	})
}

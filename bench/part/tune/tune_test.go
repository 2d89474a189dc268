// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/lane/device"
)

func ptr[T any](x T) *T { return &x }

// paper is what the ATS paper's baseline sets, on this machine.
func paper() Config {
	return on("eth2", Settings{Channels: Cores, Interrupts: Node, SendByProcessor: true, RxRing: 4096,
		RxUsecs: ptr(50), RxAdapt: ptr(false), Governor: "performance", Energy: "performance",
		Stop: []string{"irqbalance", "firewalld"}, Sysctls: map[string]string{"net.ipv4.tcp_rmem": "10240 87380 125829120"}})
}

func on(dev string, s Settings) Config { return Config{Settings: s, Devices: []string{dev}} }

// held runs c until it is in force, calls f, ends it and returns its result.
func held(t *testing.T, c Config, h *host, f func()) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		Result
		error
	}
	done := make(chan outcome)
	go func() {
		r, err := run(ctx, c, h)
		done <- outcome{r, err}
	}()
	looking := c
	looking.Check = true
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := run(ctx, looking, h)
		if err == nil {
			break
		}
		select {
		case o := <-done:
			t.Fatalf("ended early: %v", o.error)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	f()
	cancel()
	o := <-done
	if o.error != nil {
		t.Fatal(o.error)
	}
	return o.Result
}

func TestPaper(t *testing.T) {
	h, f, services := machine(t)
	before := state(t, h, f, services)
	looking := paper()
	looking.Check = true
	_, err := run(t.Context(), looking, h)
	errtest.Says(t, "before", err, "service irqbalance: want inactive, have active")
	r := held(t, paper(), h, func() {
		if f.channels.Combined != 2 {
			t.Errorf("%d channels, want 2: node 1 has cores 2 and 3", f.channels.Combined)
		}
		if got := fmt.Sprint(f.irqs); got != "map[0:[2 2] 1:[3 3]]" {
			t.Errorf("interrupts %s, want each queue on the next processor of node 1", got)
		}
		if f.ring != (device.Ring{Dev: "eth2", RX: 4096, TX: 512}) || f.coalesce.RxUsecs != 50 || f.coalesce.RxAdapt ||
			f.coalesce.TxUsecs != 20 || !f.coalesce.TxAdapt {
			t.Errorf("ring %+v, moderation %+v", f.ring, f.coalesce)
		}
		all := state(t, h, f, services)
		for _, want := range []string{"tx-1/xps_cpus 8\n", "irqbalance:inactive", "policy7/scaling_governor performance\n",
			"policy7/energy_performance_preference performance\n", "cpu7/power/energy_perf_bias 0\n",
			"tcp_rmem 10240 87380 125829120"} {
			if !strings.Contains(all, want) {
				t.Errorf("no %q in\n%s", want, all)
			}
		}
	})
	if got := r.Before["channels/eth2"]; got != "rx 0 tx 0 combined 4" {
		t.Errorf("channels before: %q", got)
	}
	if _, ok := r.Before["service firewalld"]; ok {
		t.Error("a service that did not run was stopped")
	}

	if after := state(t, h, f, services); after != before {
		t.Errorf("after it:\n%s\nbefore:\n%s", after, before)
	}
	if f.log[0] != "show irqbalance" || !slices.Contains(f.log, "start irqbalance") ||
		slices.Contains(f.log, "start firewalld") {
		t.Errorf("log %q", f.log)
	}
}

// TestKilled: a process that was killed at any change has left a record from which another process
// restores everything, and which the next tuning restores too.
func TestKilled(t *testing.T) {
	for after := range 1000 {
		h, f, services := machine(t)
		before := state(t, h, f, services)
		path := filepath.Join(t.TempDir(), "tune")
		killed := killAfter(t, h, path, after)
		if len(services) == 2 && after == 20 && state(t, h, f, services) == before {
			t.Error("20 changes changed nothing")
		}
		if err := restore(path, h); err != nil {
			t.Fatalf("after %d changes: %v", after, err)
		}

		if now := state(t, h, f, services); now != before {
			t.Fatalf("after %d changes:\n%s\nbefore:\n%s", after, now, before)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record is left: %v", err)
		}
		if !killed {
			return
		}
	}
	t.Error("the changes do not end")
}

// killAfter makes the paper's settings, but only the first changes. It reports whether there are
// more. It leaves the record as a killed process does, with half a line at the end.
func killAfter(t *testing.T, h *host, path string, changes int) bool {
	t.Helper()
	c := paper()
	rec, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	r := Result{Before: map[string]string{}}
	limited := errors.New("killed")
	count := func(s stage) stage {
		return func(h *host) ([]item, error) {
			items, err := s(h)
			if len(items) > changes {
				items, err = items[:changes], limited
			}
			changes -= len(items)
			if len(items) > 0 && errors.Is(err, limited) { // make them, then be killed
				if err := c.make(h, rec, func(*host) ([]item, error) { return items, nil }, &r); err != nil {
					t.Fatal(err)
				}
			}
			return items, err
		}
	}
	killed := false
	for _, s := range c.stages() {
		err := c.make(h, rec, count(s), &r)
		if killed = errors.Is(err, limited); killed {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rec.file.WriteString(`{"file":"/proc/sys/net/ipv4/tcp_rm`); err != nil {
		t.Fatal(err)
	}
	if err := rec.file.Close(); err != nil {
		t.Fatal(err)
	}
	return killed
}

// TestRecord: a second process cannot tune, and the next process restores what a killed one left.
func TestRecord(t *testing.T) {
	h, f, services := machine(t)
	before := state(t, h, f, services)
	c := on("eth2", Settings{NAPIThreads: true})
	c.Record = filepath.Join(t.TempDir(), "tune")
	killAfter(t, h, c.Record, 5)
	held(t, c, h, func() {
		if f.ring.RX != 512 || services["irqbalance"] != "active" {
			t.Errorf("the killed process's settings are left: %+v, %v", f.ring, services)
		}
		_, err := run(t.Context(), c, h)
		errtest.Says(t, "a second process", err, "another process tunes this host")
	})
	if after := state(t, h, f, services); after != before {
		t.Errorf("after it:\n%s\nbefore:\n%s", after, before)
	}
	if err := Restore(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
	// A device that has gone has taken its settings with it.
	killAfter(t, h, c.Record, 1000)
	if err := os.RemoveAll(filepath.Join(h.root, "sys/class/net/eth2")); err != nil {
		t.Fatal(err)
	}
	f.irqs, f.lacks = map[int][]string{}, true
	if err := restore(c.Record, h); err != nil {
		t.Error(err)
	}
}

// TestChanged: settings that another program changes while they are held are an error, and restored.
func TestChanged(t *testing.T) {
	h, f, services := machine(t)
	before := state(t, h, f, services)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	c := Config{Settings: Settings{Governor: "performance"}}
	go func() {
		_, err := run(ctx, c, h)
		done <- err
	}()
	looking := c
	looking.Check = true
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := run(ctx, looking, h)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	put(t, h.root, map[string]string{"sys/devices/system/cpu/cpufreq/policy3/scaling_governor": "schedutil\n"})
	cancel()
	errtest.Says(t, "changed", <-done, "another program has changed what was tuned: "+
		"/sys/devices/system/cpu/cpufreq/policy3/scaling_governor: want performance, have schedutil")
	if after := state(t, h, f, services); after != before {
		t.Errorf("after it:\n%s\nbefore:\n%s", after, before)
	}
}

// TestSymmetric: the mask of a high queue has several words.
func TestSymmetric(t *testing.T) {
	h, _, _ := machine(t)
	high := "sys/class/net/eth2/queues/tx-33/xps_rxqs"
	put(t, h.root, map[string]string{high: "00,00000000\n"})
	read := func() string {
		b, err := os.ReadFile(filepath.Join(h.root, high))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	held(t, on("eth2", Settings{Symmetric: true}), h, func() {
		if got := read(); got != "00000002,00000000" {
			t.Errorf("queue 33 has the mask %s", got)
		}
	})
	if got := read(); got != "00,00000000" {
		t.Errorf("queue 33 has the mask %s after it", got)
	}
}

// TestFailure: if a setting fails, the settings before it are restored.
func TestFailure(t *testing.T) {
	h, f, services := machine(t)
	before := state(t, h, f, services)
	for want, c := range map[string]Config{
		"net.ipv4.tcp_unknown: this host":             {Settings: Settings{Sysctls: map[string]string{"net.ipv4.tcp_unknown": "1"}}},
		"receive ring of 8192: eth2 has at most 4096": on("eth2", Settings{RxRing: 8192}),
		"5 channels: eth2 has at most 4":              on("eth2", Settings{Channels: "5"}),
		"set coalesce/eth2/-1 to rx-usecs 7":          on("eth2", Settings{RxUsecs: ptr(7), Governor: "performance"}),
		`sysctl "kernel.panic": want one below net`:   {Settings: Settings{Sysctls: map[string]string{"kernel.panic": "1"}}},
		`sysctl "net.../panic"`:                       {Settings: Settings{Sysctls: map[string]string{"net.../panic": "1"}}},
		`device "../eth2"`:                            on("../eth2", Settings{Symmetric: true}),
		"eth3: no transmit queues":                    on("eth3", Settings{Symmetric: true}),
		"no devices":                                  {Settings: Settings{Symmetric: true}},
		"want the processors of the interrupts too":   on("eth2", Settings{SendByProcessor: true}),
		"the kernel prefers the second":               on("eth2", Settings{SendByProcessor: true, Interrupts: Node, Symmetric: true}),
		`channels "few"`:                              on("eth2", Settings{Channels: "few"}),
		"irqbalance runs and would move them":         on("eth2", Settings{Interrupts: Node}),
		`interrupts "3-1"`:                            on("eth2", Settings{Interrupts: "3-1"}),
		`governor "../x"`:                             {Settings: Settings{Governor: "../x"}},
		`energy "low"`:                                {Settings: Settings{Energy: "low"}},
		`service "-x"`:                                {Settings: Settings{Stop: []string{"-x"}}},
	} {
		_, err := run(t.Context(), c, h)
		errtest.Says(t, want, err, want)
		if after := state(t, h, f, services); after != before {
			t.Errorf("%s: left:\n%s\nbefore:\n%s", want, after, before)
		}
	}
}

// TestLenient: what a lab's port lacks is left out, and said.
func TestLenient(t *testing.T) {
	h, f, _ := machine(t)
	f.lacks, f.irqs = true, map[int][]string{}
	put(t, h.root, map[string]string{"proc/sys/net/core/rmem_max": "1\n"})
	if err := os.Chmod(filepath.Join(h.root, "proc/sys/net/core/rmem_max"), 0o444); err != nil {
		t.Fatal(err)
	}
	c := on("eth2", Settings{TxRing: 256, RxUsecs: ptr(1), Interrupts: All, SendByProcessor: true,
		Sysctls: map[string]string{"net.core.rmem_max": "2", "net.ipv4.tcp_mem": "1 2 3", "net.ipv4.tcp_rmem": "1 2 3"}})
	_, err := run(t.Context(), c, h)
	errtest.Says(t, "on a host", err, "rmem_max: this host, network namespace or device has no such setting")
	c.Lenient = true
	held(t, c, h, func() {
		c := c
		c.Check = true
		r, err := run(t.Context(), c, h)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"net.core.rmem_max", "net.ipv4.tcp_mem", "rings of eth2", "moderation of eth2", "interrupts of eth2"}
		if !slices.Equal(r.LeftOut, want) {
			t.Errorf("left out %q, want %q", r.LeftOut, want)
		}
	})
}

// TestAction: net.ipv4.route.flush has no value. It is written, and neither checked nor restored.
func TestAction(t *testing.T) {
	h, _, _ := machine(t)
	path := "proc/sys/net/ipv4/route/flush"
	put(t, h.root, map[string]string{path: ""})
	if err := os.Chmod(filepath.Join(h.root, path), 0o200); err != nil {
		t.Fatal(err)
	}
	r := held(t, Config{Settings: Settings{Sysctls: map[string]string{"net.ipv4.route.flush": "1", "net.ipv4.tcp_rmem": "1 2 3"}}}, h,
		func() {})
	if _, restored := r.Before["/proc/sys/net/ipv4/route/flush"]; restored {
		t.Error("an action was recorded")
	}
	if err := os.Chmod(filepath.Join(h.root, path), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(h.root, path)); err != nil || string(b) != "1\n" {
		t.Errorf("it has %q, %v", b, err)
	}
}

func TestText(t *testing.T) {
	want := "channels: cores; receive ring 4096; moderation of receive fixed; interrupts of receive after 50 µs; " +
		"interrupts on processors: node; each processor sends on the queue whose interrupt it has (xps_cpus); " +
		"governor performance; energy preference performance; stopped: irqbalance, firewalld; " +
		"net.ipv4.tcp_rmem 10240 87380 125829120"
	if got := strings.Join(paper().Text(), "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

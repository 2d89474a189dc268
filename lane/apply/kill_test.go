// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

const testQueues = 8

const testLanes = `
version: 1
globals:
  dev: v0
  queues: 2
lanes:
  redis:
    rank: 1
    guarantee: 100mbit
    ceiling: 500mbit
    queues: 2
    ports: [6379]
    addrs: [10.77.0.1, "fd00:77::1"]
%s
  web:
    mode: shared
    rank: 3
    queues: 3
    poller: interrupt
    members:
      - name: plain
        ports: [80]
      - name: tls
        ports: [443]
        remote-addrs: ["fd00:77::2"]
`

// onSystem runs f in its own namespaces. There is a veth with an emulated card, with settings,
// filters and rules of another program.
func onSystem(t *testing.T, f func(t *testing.T, lanes string)) {
	t.Helper()
	onSeededSystem(t, 1, f)
}

// onSeededSystem is like onSystem, with a start state that depends on the seed. With an odd seed,
// another program has filters; with an even one, there is no clsact.
func onSeededSystem(t *testing.T, seed uint64, f func(t *testing.T, lanes string)) {
	t.Helper()
	vethtest.Run(t, testQueues, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: testQueues, Rules: 64, Contexts: 8, LinkRate: 1e9})
		mountSysfs(t)
		lanes := fmt.Sprintf(testLanes, makeCgroup(t))
		r := rand.New(rand.NewPCG(seed, 0))
		for _, line := range []string{
			"ethtool -K v0 gro on",
			fmt.Sprintf("ip link set v0 txqueuelen %d", 100+r.IntN(1000)),
			"ethtool -K v0 gso off",
		} {
			command(t, line)
		}
		if seed%2 == 1 {
			command(t, "tc qdisc add dev v0 clsact")
			command(t, fmt.Sprintf("tc filter add dev v0 egress pref %d protocol ip u32 match u32 0 0 flowid 9:9",
				1+r.IntN(20)))
			command(t, "tc filter add dev v0 ingress pref 3 protocol ipv6 u32 match u32 1 1 flowid 9:8")
		}
		for q := range testQueues {
			setQueueFile(t, fmt.Sprintf("tx-%d/xps_cpus", q), fmt.Sprintf("%x", r.IntN(4)))
			setQueueFile(t, fmt.Sprintf("tx-%d/xps_rxqs", q), fmt.Sprintf("%x", r.IntN(1<<testQueues)))
			setQueueFile(t, fmt.Sprintf("rx-%d/rps_cpus", q), fmt.Sprintf("%x", r.IntN(4)))
			setQueueFile(t, fmt.Sprintf("rx-%d/rps_flow_cnt", q), fmt.Sprint(1<<r.IntN(12)))
		}
		foreignObjects(t, r)
		f(t, lanes)
	})
}

// foreignObjects sets a table and a rule of the card, and NAPI values, as another program would
// do.
func foreignObjects(t *testing.T, r *rand.Rand) {
	t.Helper()
	k := openKernel(t)
	defer k.Close()
	table := device.RSSTable{Dev: "v0", Configured: true}
	present, err := k.Read(table)
	if err != nil || present == nil {
		t.Fatalf("%s: %v, %v", table.Key(), present, err)
	}
	for range present.(device.RSSTable).Queues {
		table.Queues = append(table.Queues, r.IntN(testQueues))
	}
	objects := []device.Object{table, device.Rule{Dev: "v0", Queue: r.IntN(2),
		Match: device.Match{Family: 4, Protocol: "udp", LocalPort: 40000}}}
	// Before Linux 6.17, napi-set cannot set "threaded", so a NAPI has no value that niclane would
	// have to restore.
	st := lanetest.Observe(t, "v0")
	for q := range testQueues {
		if !st.Capabilities.Has(device.CapNAPIThread) {
			break
		}
		objects = append(objects, device.NAPIConfig{Dev: "v0", Queue: q, Threaded: "off",
			DeferHardIRQs: uint32(r.IntN(100)), GROFlushTimeout: uint64(r.IntN(100_000)),
			IRQSuspendTimeout: uint64(r.IntN(100_000))})
	}
	for _, o := range objects {
		present, err := k.Read(o)
		if err == nil {
			err = k.Write(present, o)
		}
		if err != nil {
			t.Fatalf("%s: %v", o.Key(), err)
		}
	}
}

// setQueueFile writes a sysfs file of one of v0's queues.
func setQueueFile(t *testing.T, name, value string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(sysfs, "class/net/v0/queues", name), []byte(value), 0))
}

// sysfs is where the test mounts sysfs for its own network namespace. /sys shows that of another
// namespace.
const sysfs = "/run/nla-sysfs"

func mountSysfs(t *testing.T) {
	t.Helper()
	must.Do(t, os.Mkdir(sysfs, 0o700))
	must.Do(t, unix.Mount("sysfs", sysfs, "sysfs", 0, ""))
}

// cgroupPrefix is how the names of this process's control groups begin.
func cgroupPrefix() string { return fmt.Sprintf("nla-test-%d-", os.Getpid()) }

// makeCgroup makes a control group with its own cpuset values, and returns the line of the lanes
// file that names it. If the machine does not allow that, it returns "".
func makeCgroup(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup/cpuset"
	dir, err := os.MkdirTemp(root, cgroupPrefix())
	if err != nil {
		t.Logf("without a control group: %v", err)
		return ""
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	for _, f := range []string{"cpuset.mems", "cpuset.cpus"} {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f), b, 0)
		}
		must.Do(t, err)
	}
	return "    cpus: 1\n    cgroup: /" + filepath.Base(dir)
}

func command(t *testing.T, line string) string {
	t.Helper()
	f := strings.Fields(line)
	out, err := exec.Command(f[0], f[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// volatile matches values that the kernel assigns or counts. No plan writes them.
var volatile = regexp.MustCompile(`"id":[0-9]+|"expires":[0-9]+|"jited":[a-z]+`)

// dump returns the state of everything that a plan can write, as tc, ethtool, the kernel's files and
// niclane itself show it.
func dump(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dev := range []string{"v0", "v1"} {
		for _, line := range []string{
			"tc -j -d qdisc show dev " + dev,
			"tc -j -d class show dev " + dev,
			"tc -j filter show dev " + dev + " ingress",
			"tc -j filter show dev " + dev + " egress",
			"ethtool -k " + dev,
			"ethtool -l " + dev,
		} {
			fmt.Fprintf(&b, "$ %s\n%s\n", line,
				volatile.ReplaceAllString(strings.ReplaceAll(command(t, line), "},{", "},\n{"), ""))
		}
		dumpFiles(t, &b, filepath.Join(sysfs, "class/net", dev, "queues"))
		for _, f := range []string{"threaded", "gro_flush_timeout", "napi_defer_hard_irqs", "tx_queue_len"} {
			dumpFiles(t, &b, filepath.Join(sysfs, "class/net", dev, f))
		}
	}
	dumpFiles(t, &b, "/proc/sys/net/core")
	dumpFiles(t, &b, "/proc/sys/net/ipv4")
	groups, err := filepath.Glob("/sys/fs/cgroup/cpuset/" + cgroupPrefix() + "*/cpuset.[cm]*s")
	must.Do(t, err)
	for _, g := range groups {
		dumpFiles(t, &b, g)
	}
	objects := observed(t).Objects()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		o, err := json.Marshal(objects[key])
		must.Do(t, err)
		fmt.Fprintf(&b, "%s %s\n", key, o)
	}
	return b.String()
}

func dumpFiles(t *testing.T, b *strings.Builder, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "byte_queue_limits") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			fmt.Fprintf(b, "%s: %s\n", path, strings.TrimSpace(string(text)))
		}
		return nil // the file is write-only or not supported
	})
	must.Do(t, err)
}

func observed(t *testing.T) *device.State {
	t.Helper()
	st, err := observe.Observe(context.Background(), observe.Options{Devices: []string{"v0"}, NoProbes: true})
	must.Do(t, err)
	return st
}

// planHere plans lanes for the present state of the system.
func planHere(t *testing.T, lanes string) *plan.Plan {
	t.Helper()
	p := replanHere(t, lanes, plan.Owned{})
	if len(p.Steps) < 20 {
		t.Fatalf("only %d steps", len(p.Steps))
	}
	return p
}

// replanHere plans lanes for the present state of the system. owned are niclane's objects.
func replanHere(t *testing.T, lanes string, owned plan.Owned) *plan.Plan {
	t.Helper()
	opts := observe.Options{Devices: []string{"v0"}}
	if _, after, ok := strings.Cut(lanes, "cgroup: "); ok {
		group, _, _ := strings.Cut(after, "\n")
		opts.Cgroups = []string{group}
	}
	st, err := observe.Observe(context.Background(), opts)
	must.Do(t, err)
	p, err := golden.Plan(lanes, st, owned)
	must.Do(t, err)
	return p
}

func wantDump(t *testing.T, when, want string) {
	t.Helper()
	same(t, when+" (-want +got)", strings.Split(want, "\n"), strings.Split(dump(t), "\n"))
}

// TestSystemKill kills apply with SIGKILL before and after each write to the kernel. Rollback
// must restore everything: the dump must be as before.
func TestSystemKill(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) { killEverywhere(t, seed) })
	}
}

func killEverywhere(t *testing.T, seed uint64) {
	onSeededSystem(t, seed, func(t *testing.T, lanes string) {
		p := planHere(t, lanes)
		start := dump(t)
		dir := t.TempDir()
		for n := 0; ; n++ {
			for _, after := range []bool{false, true} {
				c := quietApplier(dir, p)
				c.Kill, c.After = n, after
				err := c.command(t).Run()
				var exit *exec.ExitError
				if err == nil && n >= len(p.Steps)/2 {
					if dump(t) == start {
						t.Error("apply left no trace in the dump")
					}
					if _, err := rollback(t, dir); err != nil {
						t.Error(err)
					}
					wantDump(t, "after apply and rollback", start)
					t.Logf("%d steps, %d writes, of kinds %v", len(p.Steps), n, kinds(p))
					return
				}
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("write %d: apply ended with %v, not by SIGKILL", n, err)
				}
				if _, err := rollback(t, dir); err != nil {
					t.Error(err)
				}
				wantDump(t, fmt.Sprintf("killed at write %d (after %v), rolled back", n, after), start)
				if t.Failed() {
					return
				}
			}
		}
	})
}

func kinds(p *plan.Plan) map[string]int {
	m := map[string]int{}
	for _, s := range p.Steps {
		m[s.Object().Kind()]++
	}
	return m
}

// TestSystemFailure makes each write fail in turn. apply itself must then restore everything.
func TestSystemFailure(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		p := planHere(t, lanes)
		start := dump(t)
		for n := 0; n < len(p.Steps); n += 3 {
			k := openKernel(t)
			c := quietApplier("", p)
			c.Fail = n
			j := memoryJournal(t, journal.Head{Plan: p, Devices: p.Devices})
			if _, err := apply.Run(context.Background(), &mortal{System: k, c: c}, p, j,
				apply.Options{}); !errors.Is(err, errInjected) {
				t.Errorf("write %d: %v", n, err)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
			wantDump(t, fmt.Sprintf("write %d failed", n), start)
			if t.Failed() {
				return
			}
		}
	})
}

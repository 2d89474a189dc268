// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/emucard"
	"github.com/niclane/niclane/internal/fakekernel/golden"
	"github.com/niclane/niclane/internal/vethtest"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/plan"
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

// onSystem runs f in namespaces of its own, on a veth with an emulated card
// that somebody else has settings and filters on.
func onSystem(t *testing.T, f func(t *testing.T, lanes string)) {
	t.Helper()
	vethtest.Run(t, testQueues, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: testQueues, Rules: 64, Contexts: 8, LinkRate: 1e9})
		mountSysfs(t)
		lanes := fmt.Sprintf(testLanes, makeCgroup(t))
		for _, line := range []string{
			"ethtool -K v0 gro on",
			"ip link set v0 txqueuelen 777",
			"tc qdisc add dev v0 clsact",
			"tc filter add dev v0 egress pref 20 protocol ip u32 match u32 0 0 flowid 9:9",
			"tc filter add dev v0 ingress pref 3 protocol ipv6 u32 match u32 1 1 flowid 9:8",
			"sysctl -qw net.ipv4.tcp_notsent_lowat=131072",
			"ethtool -K v0 gso off",
		} {
			command(t, line)
		}
		setQueueFile(t, "tx-0/xps_cpus", "2")
		setQueueFile(t, "tx-3/xps_rxqs", "81")
		setQueueFile(t, "rx-1/rps_cpus", "3")
		setQueueFile(t, "rx-2/rps_flow_cnt", "1024")
		f(t, lanes)
	})
}

// setQueueFile writes a file of v0's queues.
func setQueueFile(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(sysfs, "class/net/v0/queues", name), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// sysfs is where the thread's own is mounted, in its own mount namespace: the
// one at /sys shows another network namespace.
const sysfs = "/run/nla-sysfs"

func mountSysfs(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(sysfs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sysfs", sysfs, "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
}

// makeCgroup makes a control group with values of its own for cpuset, if this
// machine lets us, and returns the line of the config that names it.
func makeCgroup(t *testing.T) string {
	t.Helper()
	root := "/sys/fs/cgroup/cpuset"
	dir, err := os.MkdirTemp(root, "nla-test-")
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
		if err != nil {
			t.Fatal(err)
		}
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

// volatile are values that the kernel assigns anew or counts; nothing that a
// plan writes.
var volatile = regexp.MustCompile(`"id":[0-9]+|"expires":[0-9]+|"jited":[a-z]+`)

// dump is everything that a plan can write, as other programs show it.
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
			fmt.Fprintf(&b, "$ %s\n%s\n", line, volatile.ReplaceAllString(strings.ReplaceAll(command(t, line), "},{", "},\n{"), ""))
		}
		dumpFiles(t, &b, filepath.Join(sysfs, "class/net", dev, "queues"))
		for _, f := range []string{"threaded", "gro_flush_timeout", "napi_defer_hard_irqs", "tx_queue_len"} {
			dumpFiles(t, &b, filepath.Join(sysfs, "class/net", dev, f))
		}
	}
	dumpFiles(t, &b, "/proc/sys/net/core")
	dumpFiles(t, &b, "/proc/sys/net/ipv4")
	groups, err := filepath.Glob("/sys/fs/cgroup/cpuset/nla-test-*/cpuset.[cm]*s")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		dumpFiles(t, &b, g)
	}
	st := observed(t)
	objects := st.Objects()
	keys := make([]string, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		o, err := json.Marshal(objects[key])
		if err != nil {
			t.Fatal(err)
		}
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
		return nil // write-only, or not supported
	})
	if err != nil {
		t.Fatal(err)
	}
}

func observed(t *testing.T) *device.State {
	t.Helper()
	st, err := observe.Observe(context.Background(), observe.Options{Devices: []string{"v0"}, NoProbes: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// planHere plans lanes for the system as it is.
func planHere(t *testing.T, lanes string) *plan.Plan {
	t.Helper()
	p := replanHere(t, lanes, plan.Owned{})
	if len(p.Steps) < 20 {
		t.Fatalf("only %d steps", len(p.Steps))
	}
	return p
}

// replanHere plans lanes for the system as it is, with what is owned already.
func replanHere(t *testing.T, lanes string, owned plan.Owned) *plan.Plan {
	t.Helper()
	opts := observe.Options{Devices: []string{"v0"}}
	if _, after, ok := strings.Cut(lanes, "cgroup: "); ok {
		group, _, _ := strings.Cut(after, "\n")
		opts.Cgroups = []string{group}
	}
	st, err := observe.Observe(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := golden.Plan(lanes, st, owned)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantDump(t *testing.T, when, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(dump(t), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// TestSystemKill kills apply with SIGKILL before and after every write to the
// kernel; rollback must restore a full dump.
func TestSystemKill(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
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

// TestSystemFailure lets every write fail in turn; apply itself must restore.
func TestSystemFailure(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		p := planHere(t, lanes)
		start := dump(t)
		host, err := journal.Here()
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(p.Steps); n += 3 {
			k, err := apply.NewKernel()
			if err != nil {
				t.Fatal(err)
			}
			c := quietApplier("", p)
			c.Fail = n
			j := journal.New(journal.Head{Host: host, Plan: p, Devices: p.Devices})
			if _, err := apply.Run(context.Background(), &mortal{System: k, c: c}, p, j, apply.Options{}); !errors.Is(err, errInjected) {
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

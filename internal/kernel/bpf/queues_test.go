// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

func queues(priority string, m device.Match, queues ...int) device.FilterEntry {
	e := entry(m, priority)
	e.Queues = queues
	return e
}

func TestQueuesReadBack(t *testing.T) {
	m := device.Match{Family: 4, Protocol: "udp", RemotePort: 5353}
	withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
		vethtest.Write(t, c, nil, filter)
		last := device.Object(nil)
		for _, e := range []device.FilterEntry{
			queues("", m, 0), queues("1:10", m, 2, 3, 4), entry(m, "1:11"), queues("1:ffff", m, 65533),
			queues("", m, 0, 1),
		} {
			vethtest.Write(t, c, last, e)
			last = e
			same(t, nil, e.Queues, last.(device.FilterEntry).Queues)
			all, err := c.Look("v0").Contents()
			same(t, err, &bpf.Contents{Entries: []device.FilterEntry{e}}, all)
		}
		for name, e := range map[string]device.FilterEntry{
			"neither":        entry(m, ""),
			"a gap":          queues("", m, 1, 3),
			"descending":     queues("", m, 2, 1),
			"negative":       queues("", m, -1, 0),
			"too high":       queues("", m, 65533, 65534),
			"not a class":    queues("1:", m, 0),
			"the same twice": queues("", m, 1, 1),
		} {
			must.Refuse(t, name, c.Write(last, e), unix.EINVAL)
		}
	})
}

// sent returns how many packets have gone to each transmit queue.
func sent(t *testing.T, n int) []int {
	t.Helper()
	out := make([]int, n)
	for line := range strings.Lines(vethtest.Command(t, "tc -s class show dev v0")) {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == "mq" {
			n = 0
			if _, err := fmt.Sscanf(f[2], "9:%x", &n); err != nil {
				t.Fatal(err)
			}
		}
		if len(f) > 3 && f[0] == "Sent" {
			if _, err := fmt.Sscan(f[3], &out[n-1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func TestQueues(t *testing.T) {
	const n = 4
	withVeth(t, n, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		// Otherwise the counts would contain IPv6 announcements of v0.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/v0/disable_ipv6", []byte("1"), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		vethtest.Command(t, "tc qdisc add dev v0 root handle 9: mq")
		for q := 1; q <= n; q++ {
			vethtest.Command(t, fmt.Sprintf("tc qdisc add dev v0 parent 9:%x pfifo", q))
		}
		vethtest.Command(t, "ip addr add 10.9.0.1/24 dev v0")
		vethtest.Command(t, "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
		flows := func(port int) (by []int) {
			t.Helper()
			before := sent(t, n)
			for range 50 {
				send(t, [4]byte{10, 9, 0, 2}, port) // each from a different port
			}
			for q, v := range sent(t, n) {
				by = append(by, v-before[q])
			}
			return by
		}
		vethtest.Write(t, c, nil, filter)
		vethtest.Write(t, c, nil, queues("", device.Match{Family: 4, Protocol: "udp", RemotePort: 5000}, 0))
		vethtest.Write(t, c, nil, queues("", device.Match{Family: 4, Protocol: "udp", RemotePort: 5003}, 3))
		vethtest.Write(t, c, nil, queues("5:5", device.Match{Family: 4, Protocol: "udp", RemotePort: 5012}, 1, 2))
		same(t, nil, []int{50, 0, 0, 0}, flows(5000))
		same(t, nil, []int{0, 0, 0, 50}, flows(5003))
		if by := flows(5012); by[1]+by[2] != 50 || by[1] < 10 || by[2] < 10 {
			t.Errorf("packets by queue %v, want 50 in queues 1 and 2, and some in each", by)
		}
		// XPS takes precedence where it is set.
		xps(t, 1, fmt.Sprintf("%x", 1<<min(runtime.NumCPU(), 32)-1))
		same(t, nil, []int{0, 50, 0, 0}, flows(5003))
		xps(t, 1, "0")
		same(t, nil, []int{0, 0, 0, 50}, flows(5003))
	})
}

// xps sets the XPS mask of a queue: the CPUs that send by it.
func xps(t *testing.T, queue int, cpus string) {
	t.Helper()
	script := fmt.Sprintf("mount -t sysfs none /sys && echo %s > /sys/class/net/v0/queues/tx-%d/xps_cpus", cpus, queue)
	if out, err := exec.Command("unshare", "-m", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

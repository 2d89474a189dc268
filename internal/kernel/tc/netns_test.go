// SPDX-License-Identifier: Apache-2.0

package tc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// inNetns gives the test its own network namespace with a veth pair: d0 with four queues, and
// d1. The thread ends with the test, and the namespace with the thread.
func inNetns(t *testing.T) *tc.Client {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		t.Skip("unshare(CLONE_NEWNET): no permission")
	} else if err != nil {
		t.Fatal(err)
	}
	vethtest.Command(t, "ip link add d0 numtxqueues 4 numrxqueues 4 type veth peer name d1 numtxqueues 4 numrxqueues 4")
	vethtest.Command(t, "ip link set d0 up")
	vethtest.Command(t, "ip link set d1 up")
	c, err := tc.Open()
	must.Do(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

var htb = device.Qdisc{Dev: "d0", Parent: "root", Type: "htb", Handle: "1:", DefaultClass: 0x20}

// classes include bursts that are not a whole number of ticks, rates that are not a whole
// number of bytes, and rates above 32 bits of bytes/s.
var classes = []device.Class{
	{Dev: "d0", ID: "1:1", Parent: "1:", Rate: 980_000_000, Ceil: 980_000_000, Burst: 12_250, CBurst: 12_250,
		Quantum: 60_000, Overhead: 24},
	{Dev: "d0", ID: "1:10", Parent: "1:1", Rate: 333_333_333, Ceil: 980_000_001, Burst: 4_166, CBurst: 12_257,
		Quantum: 41_666, Prio: 3},
	{Dev: "d0", ID: "1:11", Parent: "1:1", Rate: 39_999_999_999, Ceil: 400_000_000_007, Burst: 499_999, CBurst: 1 << 20,
		Quantum: 60_000, Prio: 7},
	{Dev: "d0", ID: "1:ffff", Parent: "1:", Rate: 64_000, Ceil: 1_000_000, Burst: 3_028, CBurst: 3_028, Quantum: 1_514},
}

func TestObjectsReadBack(t *testing.T) {
	c := inNetns(t)
	start := vethtest.Command(t, "tc qdisc show")
	for _, q := range []device.Qdisc{htb, {Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}} {
		vethtest.Absent(t, q.Key()+" at first", c, q)
		vethtest.Write(t, c, nil, q)
		must.Refuse(t, "making "+q.Key()+" twice", c.Write(nil, q), unix.EEXIST)
	}
	for _, cl := range classes {
		vethtest.Absent(t, cl.Key()+" at first", c, cl)
		vethtest.Write(t, c, nil, cl)
		changed := cl
		changed.Rate, changed.Burst, changed.Prio, changed.Quantum = cl.Rate/2+3, cl.Burst+777, 5, 20_000
		if cl.ID != "1:1" {
			vethtest.Write(t, c, cl, changed)
			vethtest.Write(t, c, changed, cl)
		}
	}
	// The kernel's own FIFO of a class holds txqueuelen packets; niclane's FIFO has its own
	// limit.
	fifo := device.Qdisc{Dev: "d0", Parent: "1:10", Type: "pfifo", Handle: "2110:", Limit: 1000}
	longer := fifo
	longer.Limit = 2000
	vethtest.Command(t, "ip link set d0 txqueuelen 0")
	vethtest.Write(t, c, nil, fifo)
	vethtest.Write(t, c, fifo, longer)
	vethtest.Write(t, c, longer, nil)
	vethtest.Command(t, "ip link set d0 txqueuelen 1000")
	// If the client writes a value that it has read, no bit of it changes.
	for _, cl := range classes {
		got, err := c.Read(cl)
		must.Do(t, err)
		before := vethtest.Command(t, "tc -d class show dev d0 classid "+cl.ID)
		if strings.Contains(before, "overhead 24") != (cl.Overhead == 24) { // tc shows only that of rate
			t.Errorf("class %s has overhead %d; tc shows %s", cl.ID, cl.Overhead, before)
		}
		vethtest.Write(t, c, got, got)
		if diff := cmp.Diff(before, vethtest.Command(t, "tc -d class show dev d0 classid "+cl.ID)); diff != "" {
			t.Errorf("class %s written as read (-before +after):\n%s", cl.ID, diff)
		}
	}
	for i := range classes {
		vethtest.Write(t, c, classes[len(classes)-1-i], nil)
	}
	vethtest.Write(t, c, device.Qdisc{Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}, nil)
	vethtest.Write(t, c, htb, nil)
	if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
		t.Errorf("after removing all (-start +end):\n%s", diff)
	}
}

// TestQueues makes a qdisc for each queue, and a token bucket on one queue.
func TestQueues(t *testing.T) {
	c := inNetns(t)
	vethtest.Command(t, "ip link add m0 numtxqueues 4 type veth peer name m1")
	start := vethtest.Command(t, "tc qdisc show")
	mq := device.Qdisc{Dev: "m0", Parent: "root", Type: "mq", Handle: "1:"}
	for _, bucket := range []device.Qdisc{
		{Dev: "m0", Parent: "1:2", Type: "tbf", Handle: "101:", Rate: 50e6, Burst: 3125, Limit: 128125},
		{Dev: "m0", Parent: "1:4", Type: "tbf", Handle: "103:", Rate: 64e9, Burst: 65536, Limit: 1 << 20},
	} {
		vethtest.Write(t, c, nil, mq)
		vethtest.Write(t, c, nil, bucket)
		for _, want := range []device.Qdisc{mq, bucket} {
			if got, err := c.Read(want); err != nil || !device.Equal(got, want) {
				t.Errorf("read %v, %v; want %v", got, err, want)
			}
		}
		if who, err := c.Occupants(mq); err != nil || len(who) != 1 {
			t.Errorf("on the mq: %v, %v; want the bucket alone, not the queues", who, err)
		}
		if who, err := c.Occupants(bucket); err != nil || len(who) != 0 {
			t.Errorf("on the bucket: %v, %v; want nothing", who, err)
		}
		for _, wrong := range []device.Qdisc{{}, {Rate: 7, Burst: 1, Limit: 1}, {Rate: 8, Limit: 1},
			{Rate: 8, Burst: 1}} {
			wrong.Dev, wrong.Parent, wrong.Type, wrong.Handle = "m0", "1:1", "tbf", "100:"
			must.Refuse(t, fmt.Sprintf("%+v", wrong), c.Write(nil, wrong), unix.EINVAL)
		}
		vethtest.Write(t, c, bucket, nil)
		vethtest.Write(t, c, mq, nil)
		if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
			t.Errorf("after removing all (-start +end):\n%s", diff)
		}
	}
}

// TestPlainRoot replaces an mq with the kernel's own leaves, and makes it again. It does not replace
// an mq with a qdisc that a user made.
func TestPlainRoot(t *testing.T) {
	c := inNetns(t)
	vethtest.Command(t, "ip link add m0 numtxqueues 4 type veth peer name m1")
	htb := device.Qdisc{Dev: "m0", Parent: "root", Type: "htb", Handle: "1:", DefaultClass: 2}
	for _, handle := range []string{"8001:", "1:"} {
		mq := device.Qdisc{Dev: "m0", Parent: "root", Type: "mq", Handle: handle}
		vethtest.Command(t, "tc qdisc replace dev m0 root handle "+handle+" mq")
		start := vethtest.Command(t, "tc qdisc show")
		for _, other := range []device.Qdisc{htb, {Dev: "m0", Parent: "root", Type: "mq", Handle: "2:"}} {
			vethtest.Write(t, c, mq, other)
			if got, err := c.Read(mq); err != nil || !device.Equal(got, other) {
				t.Errorf("read %v, %v; want %v", got, err, other)
			}
			vethtest.Write(t, c, other, mq)
			if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
				t.Errorf("mq %s after %s (-start +end):\n%s", handle, other.Type, diff)
			}
		}
		vethtest.Command(t, "tc qdisc add dev m0 parent "+handle+"1 pfifo")
		must.Refuse(t, "an mq with a user's qdisc", c.Write(mq, htb), unix.EBUSY)
	}
}

// TestRemovedLeaf removes the leaves of an mq and of an mqprio. Packets of their queues still leave: the
// kernel alone would put noop there, which drops them.
func TestRemovedLeaf(t *testing.T) {
	for _, root := range []device.Qdisc{
		{Type: "mq"}, {Type: "mqprio", Map: "0" + strings.Repeat(" 0", 15), Queues: "2@0"},
	} {
		t.Run(root.Type, func(t *testing.T) {
			c := inNetns(t)
			vethtest.Command(t, "ip link add m0 numtxqueues 2 type veth peer name m1")
			vethtest.Command(t, "ip link set m0 up")
			vethtest.Command(t, "ip link set m1 up")
			vethtest.Command(t, "ip addr add 10.9.0.1/24 dev m0")
			vethtest.Command(t, "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev m0")
			start := vethtest.Command(t, "tc qdisc show")
			root.Dev, root.Parent, root.Handle = "m0", "root", "1:"
			if err := c.Write(nil, root); errors.Is(err, unix.ENOENT) {
				t.Skipf("this kernel has no %s", root.Type)
			} else if err != nil {
				t.Fatal(err)
			}
			removeLeaves(t, c)
			before := sent(t)
			conn, err := net.Dial("udp", "10.9.0.2:9")
			must.Do(t, err)
			defer conn.Close()
			for range 20 {
				_, err := conn.Write([]byte("x"))
				must.Do(t, err)
			}
			if got := sent(t) - before; got < 20 {
				t.Errorf("%d of 20 packets left", got)
			}
			if who, err := c.Occupants(root); err != nil || len(who) > 0 {
				t.Errorf("occupants of the root: %v, %v", who, err)
			}
			vethtest.Write(t, c, root, nil)
			if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
				t.Errorf("after removing all (-start +end):\n%s", diff)
			}
		})
	}
}

// removeLeaves makes leaves at both queues of m0 and removes them, twice.
func removeLeaves(t *testing.T, c *tc.Client) {
	t.Helper()
	var leaves []device.Qdisc
	for q := range 2 {
		leaves = append(leaves, device.Qdisc{Dev: "m0", Parent: fmt.Sprintf("1:%d", q+1), Type: "tbf",
			Handle: fmt.Sprintf("10%d:", q), Rate: 1e9, Burst: 5000, Limit: 50_000})
	}
	for range 2 {
		for _, l := range leaves {
			vethtest.Write(t, c, nil, l)
		}
		for _, l := range leaves {
			vethtest.Write(t, c, l, nil)
			vethtest.Absent(t, "after its removal", c, l)
		}
	}
	must.Refuse(t, "a leaf that is not there", c.Write(leaves[0], nil), unix.ENOENT)
}

// TestFQ makes a fq, and finds and repairs settings of others by which it drops, delays or marks packets.
func TestFQ(t *testing.T) {
	c := inNetns(t)
	fq := device.Qdisc{Dev: "d0", Parent: "root", Type: "fq", Handle: "3100:", Limit: 1 << 18}
	if err := c.Write(nil, fq); errors.Is(err, unix.ENOENT) {
		t.Skip("this kernel has no fq")
	} else if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]device.Qdisc{
		"limit 100":      {Limit: 100},
		"flow_limit 7":   {Limit: 7},
		"maxrate 8mbit":  {Limit: fq.Limit, FQ: "maxrate 8000000bit"},
		"horizon 1ms":    {Limit: fq.Limit, FQ: "horizon 1000us"},
		"ce_threshold 1": {Limit: fq.Limit, FQ: "ce_threshold 1us"},
		"pacing":         {Limit: fq.Limit, FQ: "pacing"},
	} {
		vethtest.Command(t, "tc qdisc change dev d0 root handle 3100: fq "+args)
		want.Dev, want.Parent, want.Type, want.Handle = fq.Dev, fq.Parent, fq.Type, fq.Handle
		if got, err := c.Read(fq); err != nil || !device.Equal(got, want) {
			t.Errorf("%s: read %+v, %v; want %+v", args, got, err, want)
		}
		vethtest.Write(t, c, want, fq)
	}
	must.Refuse(t, "a setting of others", c.Write(fq, device.Qdisc{Dev: "d0", Parent: "root", Type: "fq",
		Handle: "3100:", Limit: 1, FQ: "maxrate 8bit"}), unix.EINVAL)
	old := fq // as an earlier version of niclane made it: rollback makes it again
	old.FQ = "pacing"
	vethtest.Write(t, c, fq, old)
	vethtest.Write(t, c, old, fq)
	vethtest.Write(t, c, fq, nil)
}

// sent returns how many packets m0 has sent.
func sent(t *testing.T) int {
	t.Helper()
	var links []struct {
		Stats struct{ TX struct{ Packets int } } `json:"stats64"`
	}
	must.Do(t, json.Unmarshal([]byte(vethtest.Command(t, "ip -s -j link show dev m0")), &links))
	return links[0].Stats.TX.Packets
}

// TestLeaves replaces the leaf qdisc of a class by one of another kind.
func TestLeaves(t *testing.T) {
	c := inNetns(t)
	start := vethtest.Command(t, "tc qdisc show")
	vethtest.Write(t, c, nil, htb)
	for _, cl := range classes {
		vethtest.Write(t, c, nil, cl)
	}
	leaf := classes[len(classes)-1].ID
	fair := device.Qdisc{Dev: "d0", Parent: leaf, Type: "fq_codel", Handle: "110:"}
	cake := device.Qdisc{Dev: "d0", Parent: leaf, Type: "cake", Handle: "1110:", Cake: device.CakeByHost}
	for _, q := range []device.Qdisc{fair, cake} {
		if err := c.Write(nil, q); errors.Is(err, unix.ENOENT) {
			t.Skipf("this kernel has no %s", q.Type)
		} else if err != nil {
			t.Fatal(err)
		}
		vethtest.Write(t, c, q, nil)
	}
	vethtest.Write(t, c, nil, fair)
	for _, change := range [][2]device.Qdisc{{fair, cake}, {cake, fair}, {fair, cake}} {
		vethtest.Write(t, c, change[0], change[1])
		if got, err := c.Read(change[1]); err != nil || !device.Equal(got, change[1]) {
			t.Errorf("read %v, %v; want %v", got, err, change[1])
		}
	}
	// The client reads options that other programs have set.
	vethtest.Command(t, "tc qdisc change dev d0 parent "+leaf+" handle 1110: cake diffserv4 flows bandwidth 8mbit "+
		"split-gso")
	other := cake
	other.Cake, other.Rate = "diffserv4 flows split-gso", 8e6
	if got, err := c.Read(cake); err != nil || !device.Equal(got, other) {
		t.Errorf("read %v, %v; want %v", got, err, other)
	}
	vethtest.Write(t, c, other, cake)
	for _, wrong := range []string{"", "besteffort flows", "besteffort flows split-gso", "none flows no-split-gso",
		"besteffort none no-split-gso"} {
		q := cake
		q.Cake = wrong
		must.Refuse(t, fmt.Sprintf("cake %q", wrong), c.Write(cake, q), unix.EINVAL)
	}
	vethtest.Write(t, c, cake, nil)
	for i := range classes {
		vethtest.Write(t, c, classes[len(classes)-1-i], nil)
	}
	vethtest.Write(t, c, htb, nil)
	if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
		t.Errorf("after removing all (-start +end):\n%s", diff)
	}
}

func TestDump(t *testing.T) {
	c := inNetns(t)
	vethtest.Write(t, c, nil, htb)
	for _, cl := range classes {
		vethtest.Write(t, c, nil, cl)
	}
	vethtest.Command(t, "tc qdisc add dev d0 parent 1:10 handle 10: pfifo limit 77")
	vethtest.Command(t, "tc qdisc add dev d0 clsact")
	vethtest.Command(t, "tc filter add dev d0 egress pref 7 protocol ip u32 match u32 0 0 flowid 1:10")
	got, err := c.Classes("d0")
	must.Do(t, err)
	if len(got) != len(classes) {
		t.Errorf("%d classes, want %d", len(got), len(classes))
	}
	qs, err := c.Qdiscs("d0")
	must.Do(t, err)
	want := map[string]device.Qdisc{}
	for _, q := range []device.Qdisc{
		htb, {Dev: "d0", Parent: "1:10", Type: "pfifo", Handle: "10:", Limit: 77},
		{Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"},
	} {
		want[q.Parent] = q
	}
	have := map[string]device.Qdisc{}
	for _, q := range qs {
		have[q.Parent] = q.Qdisc
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("qdiscs (-want +got):\n%s", diff)
	}
	fs, err := c.Filters("d0")
	must.Do(t, err)
	if len(fs) == 0 || fs[0].Type != "u32" || fs[0].Pref != 7 || fs[0].Parent != "egress" {
		t.Errorf("filters: %+v", fs)
	}
	for _, o := range []device.Object{htb, device.Qdisc{Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"},
		classes[0], classes[1]} {
		who, err := c.Occupants(o)
		if err != nil || len(who) == 0 {
			t.Errorf("occupants of %s: %q, %v", o.Key(), who, err)
		}
	}
	if who, err := c.Occupants(classes[2]); err != nil || len(who) != 0 {
		t.Errorf("occupants of %s: %q, %v", classes[2].Key(), who, err)
	}
}

func TestDefaultsAreAbsent(t *testing.T) {
	c := inNetns(t)
	qs, err := c.Qdiscs("d0")
	must.Do(t, err)
	if len(qs) == 0 {
		t.Fatal("the default qdisc is not listed")
	}
	for _, q := range qs {
		if q.Handle != "0:" {
			t.Errorf("default %s has handle %s", q.Type, q.Handle)
		}
	}
	vethtest.Command(t, "tc qdisc add dev d0 root handle 5: tbf rate 1mbit burst 2k limit 10k")
	got, err := c.Read(htb)
	want := device.Qdisc{Dev: "d0", Parent: "root", Type: "tbf", Handle: "5:", Rate: 1e6, Burst: 2048, Limit: 10240}
	if err != nil || !device.Equal(got, want) {
		t.Errorf("foreign root: %+v, %v", got, err)
	}
	must.Refuse(t, "replacing a foreign root", c.Write(nil, htb), unix.EEXIST)
	if err := c.Write(htb, nil); err == nil {
		t.Error("deleting a foreign root by another handle: no error")
	}
	if got, err := c.Read(htb); err != nil || !device.Equal(got, want) {
		t.Errorf("foreign root afterwards: %+v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	c := inNetns(t)
	gone := device.Qdisc{Dev: "nla-none", Parent: "root", Type: "htb", Handle: "1:"}
	if _, err := c.Read(gone); !errors.Is(err, unix.ENODEV) {
		t.Errorf("missing device: %v, want ENODEV", err)
	}
	must.Refuse(t, "missing device", c.Write(nil, gone), unix.ENODEV)
	if err := c.Write(nil, classes[0]); err == nil {
		t.Error("class without its qdisc: no error")
	}
	vethtest.Absent(t, "class without its qdisc", c, classes[0])
	vethtest.Write(t, c, nil, htb)
	orphan := classes[1]
	if err := c.Write(nil, orphan); err == nil || !strings.Contains(err.Error(), "1:10") {
		t.Errorf("class without its parent: %v", err)
	}
	if err := c.Write(nil, device.Qdisc{Dev: "d0", Parent: "clsact", Type: "sfq", Handle: "7:"}); !errors.Is(err,
		unix.EOPNOTSUPP) {
		t.Errorf("unknown kind: %v, want EOPNOTSUPP", err)
	}
}

// TestMqprio makes traffic classes, puts a token bucket on a queue of one class, and then
// changes the classes.
func TestMqprio(t *testing.T) {
	c := inNetns(t)
	if out, err := exec.Command("tc", strings.Fields("qdisc add dev lo root mqprio")...).CombinedOutput(); strings.Contains(string(out), "kind is unknown") {
		t.Skipf("no mqprio here: %v: %s", err, out)
	}
	vethtest.Command(t, "ip link add m0 numtxqueues 4 type veth peer name m1 numrxqueues 4")
	vethtest.Command(t, "ip link set m0 up")
	start := vethtest.Command(t, "tc qdisc show")
	a := device.Qdisc{Dev: "m0", Parent: "root", Type: "mqprio", Handle: "1:", Map: "0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0",
		Queues: "3@0 1@3"}
	b := device.Qdisc{Dev: "m0", Parent: "root", Type: "mqprio", Handle: "1:", Map: "0 0 0 0 0 0 0 0 1 2 0 0 0 0 0 0",
		Queues: "1@0 2@1 1@3"}
	bucket := device.Qdisc{Dev: "m0", Parent: "1:4", Type: "tbf", Handle: "103:", Rate: 50e6, Burst: 3125,
		Limit: 128125}
	vethtest.Write(t, c, nil, a)
	if shown := vethtest.Command(t, "tc qdisc show dev m0 root"); !strings.Contains(shown,
		"tc 2 map 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0") || !strings.Contains(shown, "queues:(0:2) (3:3)") {
		t.Errorf("tc shows it as %s", shown)
	}
	must.Refuse(t, "making it twice", c.Write(nil, a), unix.EEXIST)
	vethtest.Write(t, c, nil, bucket)
	who, err := c.Occupants(a)
	if want := []string{"tbf 103: at 1:4"}; err != nil || !slices.Equal(who, want) {
		t.Errorf("on it are %q, %v, want %q", who, err, want)
	}
	must.Refuse(t, "changing it with the bucket on it", c.Write(a, b), unix.EBUSY)
	vethtest.Write(t, c, bucket, nil)
	vethtest.Write(t, c, a, b)
	// A change that the kernel refuses leaves the old qdisc.
	beyond := b
	beyond.Queues = "1@0 2@1 2@3"
	must.Refuse(t, "queues that are not there", c.Write(b, beyond), unix.EINVAL)
	vethtest.Write(t, c, b, b)
	// When the kernel removes the qdisc, it resets XPS, also a user's setting. A plan writes
	// XPS again after that.
	xps := "/sys/class/net/m0/queues/tx-3/xps_cpus"
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS), // of this thread only
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("sysfs", "/sys", "sysfs", 0, ""), // shows this namespace's devices
	} {
		must.Do(t, err)
	}
	must.Do(t, os.WriteFile(xps, []byte("1"), 0))
	vethtest.Write(t, c, b, nil)
	if now, err := os.ReadFile(xps); err != nil || strings.Trim(string(now), "0,\n") != "" {
		t.Errorf("xps_cpus after the removal is %q, %v: device.Qdisc says that it goes", now, err)
	}
	if diff := cmp.Diff(start, vethtest.Command(t, "tc qdisc show")); diff != "" {
		t.Errorf("after removing all (-start +end):\n%s", diff)
	}
}

// TestOccupiedClsact: the client reads what makes clsact unusable for filters of a single
// device: an ingress qdisc, or shared blocks.
func TestOccupiedClsact(t *testing.T) {
	c := inNetns(t)
	at := func() device.QdiscState {
		t.Helper()
		qs, err := c.Qdiscs("d0")
		must.Do(t, err)
		i := slices.IndexFunc(qs, func(q device.QdiscState) bool { return q.Parent == "clsact" })
		if i < 0 {
			t.Fatalf("no qdisc at clsact: %+v", qs)
		}
		return qs[i]
	}
	vethtest.Command(t, "tc qdisc add dev d0 ingress")
	if q := at(); q.Type != "ingress" {
		t.Errorf("type %q, want ingress", q.Type)
	}
	vethtest.Command(t, "tc qdisc del dev d0 ingress")
	vethtest.Command(t, "tc qdisc add dev d0 ingress_block 22 egress_block 23 clsact")
	if q := at(); q.Type != "clsact" || q.IngressBlock != 22 || q.EgressBlock != 23 {
		t.Errorf("%s with blocks %d and %d, want clsact with 22 and 23", q.Type, q.IngressBlock, q.EgressBlock)
	}
}

// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

var (
	clsact = device.Qdisc{Dev: "v0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}
	filter = device.Filter{Dev: "v0", Parent: "egress", Pref: 10, Handle: 0x6e6c, Program: bpf.EgressProgram}
)

func entry(m device.Match, priority string) device.FilterEntry {
	return device.FilterEntry{Filter: filter.Key(), Match: m, Priority: priority}
}

// withClients runs f on a veth.
func withClients[T testing.TB](t T, queues int, f func(t T, tcc *tc.Client, c *bpf.Client)) {
	t.Helper()
	vethtest.Run(t, queues, func(t T) {
		tcc, err := tc.Open()
		must.Do(t, err)
		defer tcc.Close()
		c := bpf.New(tcc)
		defer c.Close()
		f(t, tcc, c)
	})
}

// withFilter runs f on a veth with clsact.
func withFilter(t *testing.T, f func(t *testing.T, tcc *tc.Client, c *bpf.Client)) {
	t.Helper()
	withVeth(t, 2, f)
}

func withVeth[T testing.TB](t T, queues int, f func(t T, tcc *tc.Client, c *bpf.Client)) {
	t.Helper()
	withClients(t, queues, func(t T, tcc *tc.Client, c *bpf.Client) {
		must.Do(t, tcc.Write(nil, clsact))
		f(t, tcc, c)
	})
}

var someEntries = []device.FilterEntry{
	entry(device.Match{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: 11211}, "1:10"),
	entry(device.Match{Family: 4, Protocol: "tcp", Local: "10.9.0.1/32", LocalPort: 11212}, "1:11"),
	entry(device.Match{Family: 6, Protocol: "udp", Remote: "fd00::/8", RemotePort: 53, VLAN: 4094}, "1:ffff"),
	entry(device.Match{Family: 4, Protocol: "udp", Local: "10.0.0.0/8"}, "2:1"),
	entry(device.Match{Family: 4, Protocol: "udp", Local: "10.0.0.0/9"}, "2:2"),
	entry(device.Match{Family: 4, Protocol: "udp"}, "2:3"),
}

func TestObjectsReadBack(t *testing.T) {
	withFilter(t, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		for _, o := range []device.Object{filter, someEntries[0]} {
			vethtest.Absent(t, o.Key()+" at first", c, o)
		}
		must.Refuse(t, "entry without its filter", c.Write(nil, someEntries[0]), unix.ENOENT)
		vethtest.Write(t, c, nil, filter)
		must.Refuse(t, "attaching twice", c.Write(nil, filter), unix.EEXIST)
		for _, e := range someEntries {
			vethtest.Write(t, c, nil, e)
		}
		all, err := c.Look("v0").Contents()
		must.Do(t, err)
		have := map[string]device.FilterEntry{}
		for _, e := range all.Entries {
			have[e.Key()] = e
		}
		want := map[string]device.FilterEntry{}
		for _, e := range someEntries {
			want[e.Key()] = e
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		changed := someEntries[1]
		changed.Priority = "1:99"
		vethtest.Write(t, c, someEntries[1], changed)
		vethtest.Write(t, c, changed, nil)
		for i, e := range someEntries {
			if i != 1 {
				vethtest.Write(t, c, e, nil)
			}
		}
		if all, err := c.Look("v0").Contents(); err != nil || len(all.Entries) != 0 {
			t.Errorf("entries at the end: %+v, %v", all, err)
		}
		vethtest.Write(t, c, nil, someEntries[0])
		vethtest.Write(t, c, filter, nil)
		vethtest.Absent(t, "entry of a removed filter", c, someEntries[0])
		// A filter that is attached again has no entries.
		vethtest.Write(t, c, nil, filter)
		vethtest.Absent(t, "entry of a filter attached again", c, someEntries[0])
		must.Do(t, tcc.Write(clsact, nil))
		vethtest.Absent(t, "filter without clsact", c, filter)
	})
}

// TestPatternsAreReused uses more patterns than there are slots, one after another.
func TestPatternsAreReused(t *testing.T) {
	withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
		vethtest.Write(t, c, nil, filter)
		prefix := func(bits int) device.FilterEntry {
			return entry(device.Match{Family: 6, Protocol: "tcp", Local: fmt.Sprintf("8000::/%d", bits)}, "1:10")
		}
		for bits := 1; bits <= 64; bits++ {
			vethtest.Write(t, c, nil, prefix(bits))
			vethtest.Write(t, c, prefix(bits), nil)
		}
		for bits := 1; bits <= 16; bits++ {
			vethtest.Write(t, c, nil, prefix(bits))
		}
		must.Refuse(t, "a set of fields too many", c.Write(nil, prefix(17)), unix.ENOSPC)
		vethtest.Write(t, c, prefix(3), nil)
		vethtest.Write(t, c, nil, prefix(17))
	})
}

// TestForeignFilters checks that niclane's filters neither hide foreign filters nor are
// mistaken for them.
func TestForeignFilters(t *testing.T) {
	withFilter(t, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		// A foreign filter after ours sees all packets too.
		bands(t)
		vethtest.Command(t, "tc filter add dev v0 egress pref 20 protocol all u32 match u32 0 0 flowid 7:7")
		vethtest.Write(t, c, nil, filter)
		vethtest.Write(t, c, nil, entry(device.Match{Family: 4, Protocol: "udp", RemotePort: 5353}, "9:3"))
		vethtest.Command(t, "ip addr add 10.9.0.1/24 dev v0")
		vethtest.Command(t, "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
		send(t, [4]byte{10, 9, 0, 2}, 5353)
		if n := packets(t, "93:"); n != 1 {
			t.Errorf("%d packets in the band of the entry, want 1", n)
		}
		send(t, [4]byte{10, 9, 0, 2}, 5354)
		if n := packets(t, "93:"); n != 1 {
			t.Errorf("%d packets in the band of the entry after another, want 1", n)
		}
		if out := vethtest.Command(t, "tc -s filter show dev v0 egress pref 20"); !strings.Contains(out, "flowid 7:7") {
			t.Errorf("the foreign filter:\n%s", out)
		}
		foreign := device.Filter{Dev: "v0", Parent: "egress", Pref: 20, Handle: 0x80000800}
		if got, err := c.Read(foreign); err != nil || got == nil || got.(device.Filter).Program == bpf.EgressProgram {
			t.Errorf("the foreign filter reads as %+v, %v", got, err)
		}
		if _, err := c.Read(device.FilterEntry{Filter: foreign.Key(), Match: someEntries[0].Match}); err == nil {
			t.Error("an entry in a foreign filter: no error")
		}
		fs, err := tcc.Filters("v0")
		if err != nil || len(fs) < 2 || fs[0].Name != bpf.EgressProgram {
			t.Errorf("filters: %+v, %v", fs, err)
		}
	})
}

// TestLaterFiltersRun checks that a foreign filter can drop packets that ours has
// classified.
func TestLaterFiltersRun(t *testing.T) {
	withFilter(t, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		vethtest.Write(t, c, nil, filter)
		vethtest.Write(t, c, nil, entry(device.Match{Family: 4, Protocol: "udp", RemotePort: 5353}, "9:3"))
		second := filter
		second.Pref, second.Handle = 11, 1
		fd, err := bpf.DropProgram()
		must.Do(t, err)
		defer fd.Close()
		second.Program = "theirs"
		must.Do(t, tcc.AddBPF(second, fd.FD()))
		vethtest.Command(t, "ip addr add 10.9.0.1/24 dev v0")
		vethtest.Command(t, "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
		before := received(t)
		send(t, [4]byte{10, 9, 0, 2}, 5353)
		if n := received(t) - before; n != 0 {
			t.Errorf("%d packets went past a filter that drops all", n)
		}
		must.Do(t, tcc.DeleteBPF(second))
		before = received(t)
		send(t, [4]byte{10, 9, 0, 2}, 5353)
		if n := received(t) - before; n != 1 {
			t.Errorf("%d packets without it, want 1", n)
		}
	})
}

// TestVLANOutsideTheData checks packets whose VLAN tag is outside their data, as in packets of a
// VLAN device. Here a program adds the tag.
func TestVLANOutsideTheData(t *testing.T) {
	withFilter(t, func(t *testing.T, tcc *tc.Client, c *bpf.Client) {
		bands(t)
		push, err := bpf.VLANProgram(7)
		must.Do(t, err)
		defer push.Close()
		first := device.Filter{Dev: "v0", Parent: "egress", Pref: 5, Handle: 1, Program: "push"}
		must.Do(t, tcc.AddBPF(first, push.FD()))
		vethtest.Command(t, "ip addr add 10.9.0.1/24 dev v0")
		vethtest.Command(t, "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0")
		vethtest.Write(t, c, nil, filter)
		vethtest.Write(t, c, nil, entry(device.Match{Family: 4, Protocol: "udp", RemotePort: 5353, VLAN: 8}, "9:3"))
		send(t, [4]byte{10, 9, 0, 2}, 5353)
		if n := packets(t, "93:"); n != 0 {
			t.Errorf("%d packets matched another VLAN", n)
		}
		vethtest.Write(t, c, nil, entry(device.Match{Family: 4, Protocol: "udp", RemotePort: 5353, VLAN: 7}, "9:3"))
		send(t, [4]byte{10, 9, 0, 2}, 5353)
		if n := packets(t, "93:"); n != 1 {
			t.Errorf("%d packets matched their VLAN, want 1", n)
		}
	})
}

// bands gives v0 the HTB classes 9:1 (the default, with qdisc 91:) and 9:3 (with qdisc 93:).
func bands(t *testing.T) {
	t.Helper()
	vethtest.Command(t, "tc qdisc add dev v0 root handle 9: htb default 1")
	vethtest.Command(t, "tc class add dev v0 parent 9: classid 9:1 htb rate 1gbit")
	vethtest.Command(t, "tc class add dev v0 parent 9: classid 9:3 htb rate 1gbit")
	vethtest.Command(t, "tc qdisc add dev v0 parent 9:1 handle 91: pfifo")
	vethtest.Command(t, "tc qdisc add dev v0 parent 9:3 handle 93: pfifo")
}

func send(t *testing.T, to [4]byte, port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	if err := unix.Sendto(fd, []byte("hello"), 0, &unix.SockaddrInet4{Addr: to, Port: port}); err != nil &&
		err != unix.ENOBUFS {
		t.Fatal(err)
	}
}

// packets returns how many packets a qdisc has sent.
func packets(t *testing.T, handle string) int {
	t.Helper()
	out := vethtest.Command(t, "tc -s qdisc show dev v0")
	_, after, ok := strings.Cut(out, "pfifo "+handle)
	if !ok {
		t.Fatalf("no qdisc %s in\n%s", handle, out)
	}
	var bytes, n int
	if _, err := fmt.Sscanf(after[strings.Index(after, "Sent"):], "Sent %d bytes %d pkt", &bytes, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// received returns how many unicast packets have arrived at the peer.
func received(t *testing.T) int {
	t.Helper()
	out := vethtest.Command(t, "ip -s -s link show dev v1")
	_, after, _ := strings.Cut(out, "RX:")
	_, after, _ = strings.Cut(after, "\n")
	var bytes, n int
	if _, err := fmt.Sscanf(after, "%d %d", &bytes, &n); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return n
}

// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestOnTheWire counts the bytes in an HTB class. An application sends them to a peer in another
// namespace: as a server, as a client, and by UDP.
func TestOnTheWire(t *testing.T) {
	run(t, func(b *bed) {
		peer, a := startApp(t, b.v2, true), startApp(t, b.dir(), false)
		vethtest.Command(t, "ip link set v1 netns "+peer.pid())
		link := vethtest.Interface(t, "v0")
		vethtest.AddAddress(t, link.Index, [4]byte{10, 9, 0, 1}, 24)
		enter := "nsenter --net=/proc/" + peer.pid() + "/ns/net ip "
		vethtest.Command(t, enter+"address add 10.9.0.2/24 dev v1")
		vethtest.Command(t, enter+"link set v1 up")
		// Without messages of neighbour discovery and group membership, all packets of this
		// test are the application's.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/v0/disable_ipv6", []byte("1"), 0); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		mac := func(dev string, run ...string) string {
			t.Helper()
			out, err := exec.Command(run[0], append(run[1:], "-o", "link", "show", dev)...).Output()
			must.Do(t, err)
			_, rest, _ := strings.Cut(string(out), "link/ether ")
			return strings.Fields(rest)[0]
		}
		vethtest.Command(t, "ip neighbour replace 10.9.0.2 lladdr "+mac("v1", strings.Fields(enter)...)+
			" dev v0 nud permanent")
		vethtest.Command(t, enter+"neighbour replace 10.9.0.1 lladdr "+mac("v0", "ip")+" dev v1 nud permanent")

		tcc, err := tc.Open()
		must.Do(t, err)
		defer tcc.Close()
		for _, o := range []device.Object{
			device.Qdisc{Dev: "v0", Parent: "root", Type: "htb", Handle: "1:", DefaultClass: 0x20},
			device.Class{Dev: "v0", ID: "1:10", Parent: "1:", Rate: 1e9, Ceil: 1e9, Burst: 1 << 16, CBurst: 1 << 16,
				Quantum: 1514},
			device.Class{Dev: "v0", ID: "1:20", Parent: "1:", Rate: 1e9, Ceil: 1e9, Burst: 1 << 16, CBurst: 1 << 16,
				Quantum: 1514},
		} {
			must.Do(t, tcc.Write(nil, o))
		}
		counts := func() map[string]uint64 {
			t.Helper()
			cs, err := tcc.ClassCounters("v0")
			must.Do(t, err)
			m := map[string]uint64{}
			for _, c := range cs {
				m[c.ID] = c.Bytes
			}
			return m
		}
		const messages, size = 50, 100
		// send sends from each socket. It expects the packets in one class, and none in the
		// other.
		send := func(when, in string, sockets ...string) {
			t.Helper()
			not := map[string]string{"1:10": "1:20", "1:20": "1:10"}[in]
			before := counts()
			for _, s := range sockets {
				a.do("send %s %d %d", s, messages, size)
			}
			want := before[in] + uint64(len(sockets)*messages*size)
			vethtest.Until(t, when+": bytes of "+strings.Join(sockets, ", ")+" in class "+in,
				func() bool { return counts()[in] >= want })
			if got := counts()[not]; got != before[not] {
				t.Errorf("%s: %d bytes in class %s, want none", when, got-before[not], not)
			}
		}
		a.do("tcp l")
		a.do("listen l 0")
		peer.do("tcp pl")
		peer.do("listen pl 0")
		peer.do("udp pu")
		peer.do("bind pu 9")
		open := func(n string) []string {
			peer.do("tcp c%s", n)
			peer.do("connect c%s 10.9.0.1 %d", n, a.do("port l"))
			a.do("accept l s%s", n)
			a.do("nodelay s%s", n)
			a.do("tcp k%s", n)
			a.do("connect k%s 10.9.0.2 %d", n, peer.do("port pl"))
			peer.do("accept pl ks%s", n)
			a.do("nodelay k%s", n)
			a.do("udp u%s", n)
			a.do("connect u%s 10.9.0.2 %d", n, 9)
			return []string{"s" + n, "k" + n, "u" + n}
		}
		first := open("1")
		send("before", "1:20", first...)
		b.write(nil, b.class("1:10"))
		send("existing sockets", "1:10", first...)
		before := counts()
		second := open("2")
		if got := counts()["1:20"]; got != before["1:20"] {
			t.Errorf("%d bytes of handshakes are not in the class", got-before["1:20"])
		}
		send("new sockets", "1:10", second...)
		b.write(b.class("1:10"), nil)
		send("removed", "1:20", append(append(first, second...), open("3")...)...)
	})
}

// TestBusy makes and removes the class while processes of the group make sockets and
// connections as fast as they can.
func TestBusy(t *testing.T) {
	run(t, func(b *bed) {
		const rounds, open = 5, 50
		var wg sync.WaitGroup
		stop := make(chan struct{})
		var all [2]*app
		var made [len(all)]int
		for i := range all {
			all[i] = startApp(t, b.dir(), false)
			all[i].do("tcp l")
			all[i].do("listen l 0")
			all[i].port = all[i].do("port l")
		}
		for i, a := range all {
			wg.Add(1)
			go func() { // it only sends commands, so this thread's namespace does not matter
				defer wg.Done()
				for ; ; made[i]++ {
					select {
					case <-stop:
						return
					default:
					}
					n := strconv.Itoa(made[i] % open)
					lines := []string{"tcp c" + n, "connect c" + n + " 127.0.0.1 " + strconv.Itoa(a.port),
						"accept l s" + n, "udp u" + n}
					if made[i] >= open {
						lines = append([]string{"close c" + n, "close s" + n, "close u" + n}, lines...)
					}
					for _, line := range lines {
						if _, err := a.try("%s", line); err != nil {
							t.Errorf("%s: %v", line, err)
							return
						}
					}
				}
			}()
		}
		o := b.class("1:10")
		for range rounds {
			b.write(nil, o)
			b.write(o, nil)
		}
		b.write(nil, o)
		close(stop)
		wg.Wait()
		for i, a := range all {
			t.Logf("%d connections", made[i])
			if made[i] == 0 {
				t.Error("want some")
			}
			for n := range min(made[i], open) {
				a.want("at the end", fmt.Sprintf("c%d=10010", n), fmt.Sprintf("s%d=10010", n),
					fmt.Sprintf("u%d=10010", n))
			}
		}
	})
}

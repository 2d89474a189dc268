// SPDX-License-Identifier: Apache-2.0

package sockiter_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// TestSockets compares the list with the values that the sockets' own options give.
func TestSockets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	vethtest.Run(t, 1, func(t *testing.T) {
		vethtest.SetUp(t, "lo", true)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		socket := func() int {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must(err)
			t.Cleanup(func() { unix.Close(fd) })
			return fd
		}
		at := unix.SockaddrInet4{Port: 7000, Addr: [4]byte{127, 0, 0, 1}}
		var listeners [2]int
		for i := range listeners {
			listeners[i] = socket()
			must(unix.SetsockoptInt(listeners[i], unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			must(unix.Bind(listeners[i], &at))
			must(unix.Listen(listeners[i], 8))
		}
		client := socket()
		must(unix.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_PRIORITY, 5))
		must(unix.Connect(client, &at))

		all, err := sockiter.List(sockiter.Filter{})
		must(err)
		if len(all) != 4 { // including the connection that is waiting for accept
			t.Fatalf("%d sockets: %+v", len(all), all)
		}
		of := func(fd int) sockiter.Socket {
			t.Helper()
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			must(err)
			for _, s := range all {
				if s.Cookie == cookie {
					return s
				}
			}
			t.Fatalf("socket %d is not listed", cookie)
			return sockiter.Socket{}
		}
		a, b, c := of(listeners[0]), of(listeners[1]), of(client)
		if !a.Listens || !b.Listens || a.Group == 0 || a.Group != b.Group || a.Picked || c.Listens || c.Group != 0 {
			t.Errorf("%+v\n%+v\n%+v", a, b, c)
		}
		var st unix.Stat_t
		must(unix.Fstat(client, &st))
		cpu, err := unix.GetsockoptInt(client, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
		must(err)
		if c.Inode != st.Ino || c.CPU != cpu || c.Priority != 5 ||
			c.Remote != netip.MustParseAddrPort("127.0.0.1:7000") || c.Received == 0 {
			t.Errorf("%+v, want inode %d, processor %d", c, st.Ino, cpu)
		}
		info, err := unix.GetsockoptTCPInfo(client, unix.SOL_TCP, unix.TCP_INFO)
		must(err)
		if rtt := time.Duration(info.Rtt) * time.Microsecond; c.RTT != rtt || rtt == 0 {
			t.Errorf("round trip time %v, want %v", c.RTT, rtt)
		}
		for name, f := range map[string]struct {
			filter sockiter.Filter
			want   int
		}{
			"listeners":   {sockiter.Filter{Listeners: true}, 2},
			"connections": {sockiter.Filter{Connections: true}, 2},
			"a port":      {sockiter.Filter{Ports: []uint16{7000, 1}}, 3},
			"no port":     {sockiter.Filter{Ports: []uint16{7001}}, 0},
		} {
			got, err := sockiter.List(f.filter)
			if err != nil || len(got) != f.want {
				t.Errorf("%s: %d sockets, want %d: %v", name, len(got), f.want, err)
			}
		}
		if _, err := sockiter.List(sockiter.Filter{Listeners: true, Connections: true}); err == nil {
			t.Error("listeners only, and none")
		}
	})
}

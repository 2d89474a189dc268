// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// TestPod: requests that come by a device of the host and are routed to a service in a namespace of
// its own are followed from that device to it.
func TestPod(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.OnOwnThread(func() {
		must.Do(t, unix.Unshare(unix.CLONE_NEWNET))
		vethtest.IP(t, `
			netns add pod
			netns add client
			link add h0 type veth peer name p0 netns pod
			link add h1 type veth peer name c0 netns client
			addr add 10.8.0.1/24 dev h0
			addr add 10.9.0.1/24 dev h1
			link set h0 up
			link set h1 up
			-n pod addr add 10.8.0.2/24 dev p0
			-n pod link set p0 up
			-n pod route add default via 10.8.0.1
			-n client addr add 10.9.0.2/24 dev c0
			-n client link set c0 up
			-n client route add default via 10.9.0.1`)
		defer vethtest.IP(t, "netns del pod\nnetns del client")
		must.Do(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		var inode uint32
		var l net.Listener
		in(t, "pod", func() {
			inode = namespace(t)
			var err error
			l, err = net.Listen("tcp", "10.8.0.2:80")
			must.Do(t, err)
		})
		defer l.Close()
		p, err := Open(Options{Services: []Service{{NetNS: inode, Protocol: tcp, Ports: []uint16{80}}},
			Device: vethtest.Interface(t, "h1").Index})
		must.Do(t, err)
		defer p.Close()
		must.Do(t, p.Attach())
		must.Do(t, p.Threads(true))
		var client net.Conn
		in(t, "client", func() {
			var err error
			client, err = net.Dial("tcp", l.Addr().String())
			must.Do(t, err)
		})
		defer client.Close()
		server, err := l.Accept()
		must.Do(t, err)
		defer server.Close()
		for range 10 {
			write(t, client, 64)
			read(t, server, 64)
			write(t, server, 64)
			read(t, client, 64)
		}
		r := until(t, p, 0, 10)
		for stage, times := range r.Times {
			if n := count(times); stage != 5 && n != 10 { // 5: no completions of a veth
				t.Errorf("stage %d: %d times, want 10", stage, n)
			}
		}
	})
}

// in runs f on a thread in a named network namespace.
func in(t *testing.T, name string, f func()) {
	t.Helper()
	vethtest.OnOwnThread(func() {
		ns, err := unix.Open("/run/netns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must.Do(t, err)
		defer unix.Close(ns)
		must.Do(t, unix.Setns(ns, unix.CLONE_NEWNET))
		f()
	})
}

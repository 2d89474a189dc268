// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// The UDP ports that the tests use.
const (
	port  = 5000  // each pod's port that its container declares
	other = 5001  // each pod's port that its container does not declare
	front = 30500 // the node's port that leads to a pod (node port)
	drain = 4000  // the port that receives pods' packets at the other end of the wire
)

// A place is a network namespace with its listening sockets. The host's namespace has the name "".
type place struct {
	name         string
	addr4, addr6 netip.Addr
	sockets      map[uint16]*net.UDPConn
	got          atomic.Int64 // number of datagrams received
}

func (p *place) addrs() []netip.Addr { return []netip.Addr{p.addr4, p.addr6} }

// ip runs commands of ip(8), one a line, in a network namespace. "" is the host's namespace.
func ip(t *testing.T, namespace, script string) {
	t.Helper()
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s\n%s", strings.Join(args, " "), err, out, script)
	}
}

// routed makes the host forward packets between the wire and the pods, like a pod network without
// tunnels and translation.
func routed(t *testing.T) {
	t.Helper()
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		was := bed.Read(t, file)
		bed.Write(t, file, "1")
		t.Cleanup(func() { bed.Write(t, file, was) })
	}
	ip(t, bed.Peer, fmt.Sprintf("route add 10.244.0.0/24 via %s\nroute add fd00::/64 via %s\n", bed.CardAddr,
		bed.CardAddr6))
}

// newPod makes the network namespace of the nth pod, with a veth pair to the host, and listens in
// it. The neighbour entries are permanent. Otherwise, a guest that gets no CPU time for seconds
// could answer too late, and packets that wait for the answer would be lost.
func newPod(t *testing.T, name string, n int) *place {
	t.Helper()
	p := &place{name: name, addr4: netip.AddrFrom4([4]byte{10, 244, 0, byte(n)}),
		addr6: netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)})}
	vars := strings.NewReplacer("POD", name, "ADDR4", p.addr4.String(), "ADDR6", p.addr6.String(),
		"MAC0", fmt.Sprintf("02:6e:6c:01:00:%02x", n), "MAC1", fmt.Sprintf("02:6e:6c:01:01:%02x", n))
	ip(t, "", vars.Replace("netns add POD\nlink add vePOD address MAC0 type veth peer name eth0 address MAC1 "+
		"netns POD\n"))
	t.Cleanup(func() { ip(t, "", vars.Replace("link del vePOD\nnetns del POD\n")) })
	ip(t, "", vars.Replace(`link set vePOD up
addr add 10.244.0.1/32 dev vePOD
addr add fd00::1/128 dev vePOD nodad
route add ADDR4 dev vePOD
route add ADDR6 dev vePOD
neigh add ADDR4 lladdr MAC1 dev vePOD
neigh add ADDR6 lladdr MAC1 dev vePOD
`))
	ip(t, name, vars.Replace(`link set lo up
link set eth0 up
addr add ADDR4/32 dev eth0
addr add ADDR6/128 dev eth0 nodad
route add 10.244.0.1 dev eth0
route add default via 10.244.0.1
route add fd00::1 dev eth0
route add default via fd00::1
neigh add 10.244.0.1 lladdr MAC0 dev eth0
neigh add fd00::1 lladdr MAC0 dev eth0
`))
	p.listen(t, port, other)
	return p
}

// newHost returns the host as a place. It listens on the same ports as a pod, and on the node port.
func newHost(t *testing.T) *place {
	t.Helper()
	p := &place{addr4: bed.CardAddr, addr6: bed.CardAddr6}
	p.listen(t, port, other, front)
	return p
}

// listen opens UDP sockets on ports and counts what they receive. Without sockets, the kernel would
// answer that the ports are closed.
func (p *place) listen(t *testing.T, ports ...uint16) {
	t.Helper()
	p.sockets = map[uint16]*net.UDPConn{}
	open := func() {
		for _, n := range ports {
			c, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(n)})
			if err != nil {
				t.Fatal(err)
			}
			p.sockets[n] = c
		}
	}
	if p.name == "" {
		open()
	} else {
		bed.Within(t, p.name, open)
	}
	for _, c := range p.sockets {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b := make([]byte, 100)
			for {
				if _, _, err := c.ReadFromUDPAddrPort(b); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					return
				}
				p.got.Add(1)
			}
		}()
		t.Cleanup(func() {
			_ = c.Close()
			<-ended
		})
	}
}

// send sends n datagrams from a port of this place to port drain at the other end of the wire. six
// chooses IPv6.
func (p *place) send(t *testing.T, from uint16, six bool, n int) {
	t.Helper()
	to := netip.AddrPortFrom(bed.WireAddr, drain)
	if six {
		to = netip.AddrPortFrom(bed.WireAddr6, drain)
	}
	for range n {
		if _, err := p.sockets[from].WriteToUDPAddrPort([]byte("hello"), to); err != nil {
			t.Fatal(err)
		}
	}
}

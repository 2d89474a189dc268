// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// TestTCPInALane sends the first object of a connection from a lane that has its share by departure times, on
// an idle link. Traffic Server listens with TCP_DEFER_ACCEPT: a connection's first round-trip time ends with the
// request, and is as long as the client waits for that. fq paces TCP by default, by this time. The object then
// takes 25 ms.
func TestTCPInALane(t *testing.T) {
	if !inGuest(t) {
		return
	}
	const rate, size = 100_000_000_000, 4_000_000
	const onLink = time.Duration(size * 8 / (rate / 1_000_000_000) * 1514 / mss)
	l, err := lab.Up(t.Context(), lab.Config{Name: "v", LinkRate: rate, LinkBurst: lab.LeastBurst(0)})
	must.Do(t, err)
	server := l.Config.IPv4(lab.SUT)
	var listener int
	onHost(t, l, lab.SUT, func() {
		makeLanes(t, lab.Port, nil, "version: 1\nglobals: {dev: "+lab.Port+", link-rate: 100gbit, force: {bandwidth: "+
			"edt}}\nlanes:\n  a: {queues: 2, rank: 1, ports: [7000]}\n")
		listener = socket(t, server)
	})
	must.Do(t, unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*size)) // of accepted ones too
	must.Do(t, unix.SetsockoptInt(listener, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 45))
	must.Do(t, unix.Listen(listener, 1))
	b := make([]byte, size)
	for i := range 3 {
		var client int
		onHost(t, l, lab.Client, func() {
			client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must.Do(t, err)
		})
		must.Do(t, unix.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4*size))
		must.Do(t, unix.Connect(client, &unix.SockaddrInet4{Port: 7000, Addr: server.As4()}))
		sleep(now() + 20e6)
		_, err = unix.Write(client, b[:100])
		must.Do(t, err)
		accepted, _, err := unix.Accept(listener)
		must.Do(t, err)
		began := now()
		if n, err := unix.Write(accepted, b); n != size { // its buffer takes all
			t.Fatal(n, err)
		}
		for got := 0; got < size; {
			n, err := unix.Read(client, b)
			must.Do(t, err)
			got += n
		}
		if took := time.Duration(now() - began); took > onLink*5/4 {
			t.Errorf("connection %d: %v, want about the %v that the object takes on the link", i, took, onLink)
		}
	}
}

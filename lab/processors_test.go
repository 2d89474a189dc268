// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// option returns the value of a socket option at level SOL_SOCKET.
func option(t *testing.T, c net.Conn, name int) (value int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	must.Do(t, err)
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		value, optErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, name)
	}); err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	return value
}

// incomingCPU returns the CPU on which the stack processed the last packet for a socket.
func incomingCPU(t *testing.T, c net.Conn) int {
	t.Helper()
	return option(t, c, unix.SO_INCOMING_CPU)
}

// TestProcessors: packets to the SUT are processed on the SUT's CPUs, and packets to other hosts on
// the other CPUs. This is so for every sender and for every CPU from which it sends.
func TestProcessors(t *testing.T) {
	online, err := onlineCPUs()
	must.Do(t, err)
	if len(online) < 2 {
		t.Skipf("one processor online: %v", online)
	}
	l := raise(t, Config{SUTCPUs: online[1:2], OtherCPUs: online[:1]})
	ln := listen(t, l, l.Config.IPv4(SUT), 8000)
	for _, host := range []string{Client, Noise} {
		v := converse(t, l, host, ln)
		for i := range 50 {
			// Send from both CPUs in turn.
			from := online[i%2]
			if err := thread(func() error {
				var set unix.CPUSet
				set.Set(from)
				if err := unix.SchedSetaffinity(0, &set); err != nil {
					return err
				}
				return v.exchange()
			}); err != nil {
				t.Fatal(err)
			}
			if cpu := incomingCPU(t, v.far); cpu != online[1] {
				t.Fatalf("sent from processor %d, the SUT received on %d, want %d", from, cpu, online[1])
			}
			if cpu := incomingCPU(t, v.near); cpu != online[0] {
				t.Fatalf("sent from processor %d, %s received on %d, want %d", from, host, cpu, online[0])
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package sock

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDialAndListen(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "[::1%lo]:0"} {
		t.Run(at, func(t *testing.T) {
			l, addr, err := Listen(netip.MustParseAddrPort(at))
			if err != nil {
				if at != "127.0.0.1:0" && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
					t.Skipf("no IPv6 loopback: %v", err)
				}
				t.Fatal(err)
			}
			defer unix.Close(l)
			set := false
			fd, err := Dial(addr, time.Minute, func(fd int) error {
				set = true
				return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, 3)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if p, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || p != 3 || !set {
				t.Errorf("priority %d (%v), want 3", p, err)
			}
			if _, err := unix.Read(fd, make([]byte, 1)); err != unix.EAGAIN {
				t.Errorf("read: %v, want EAGAIN of a non-blocking socket", err)
			}
			for _, fd := range []int{fd, l} {
				if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d survives exec (%v)", fd, err)
				}
			}
		})
	}
}

func TestDialErrors(t *testing.T) {
	l, addr, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(l)
	if _, err := Dial(addr, time.Minute, nil); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := Dial(addr, time.Minute, func(int) error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("option refused: %v", err)
	}
	if _, err := Dial(netip.MustParseAddrPort("[fe80::1%nosuchlink0]:1"), time.Minute, nil); err == nil {
		t.Error("unknown zone: no error")
	}
	if _, _, err := Listen(netip.MustParseAddrPort("192.0.2.1:0")); err == nil { // TEST-NET-1, not an address of this host
		t.Error("listening on a foreign address: no error")
	}
}

// TestDialTimeout: a connection attempt without an answer must end at its timeout. On loopback, a
// listener whose backlog is full drops the SYN.
func TestDialTimeout(t *testing.T) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(l)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	for range 4 { // a backlog of 0 holds one connection
		fd, err := Dial(addr, 50*time.Millisecond, nil)
		if err != nil {
			if !errors.Is(err, unix.ETIMEDOUT) {
				t.Errorf("got %v, want a timeout", err)
			}
			return
		}
		defer unix.Close(fd)
	}
	t.Error("four connections to a backlog of 0")
}

// SPDX-License-Identifier: Apache-2.0

package nlsock

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

var listLinks = netlink.Message{
	Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
	Data:   make([]byte, unix.SizeofIfInfomsg),
}

// dialed returns a connection and the socket in it.
func dialed(t *testing.T) (*netlink.Conn, *socket) {
	fd, port, err := open(unix.NETLINK_ROUTE)
	must.Do(t, err)
	s := &socket{family: unix.NETLINK_ROUTE, fd: fd, port: port, pid: port}
	c := netlink.NewConn(s, port)
	t.Cleanup(func() { c.Close() })
	return c, s
}

// disturb leaves an unread answer in the socket, as a failed receive does. The next receive
// gets this answer.
func disturb(t *testing.T, s *socket) {
	m := listLinks
	m.Header.Sequence, m.Header.Length = 1, uint32(unix.NLMSG_HDRLEN+len(m.Data))
	b, err := m.MarshalBinary()
	must.Do(t, err)
	must.Do(t, unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// TestOutOfStep checks that the client does not accept the answer to an earlier request. It
// repeats a request that reads. A request that writes fails. The connection works after both.
func TestOutOfStep(t *testing.T) {
	c, s := dialed(t)
	want, err := c.Execute(listLinks)
	must.Do(t, err)
	disturb(t, s)
	if got, err := c.Execute(listLinks); err != nil || len(got) != len(want) {
		t.Errorf("read out of step: %d links of %d, %v", len(got), len(want), err)
	}
	remove := netlink.Message{Header: netlink.Header{Type: unix.RTM_DELLINK,
		Flags: netlink.Request | netlink.Acknowledge}, Data: make([]byte, unix.SizeofIfInfomsg)}
	remove.Data[4], remove.Data[5], remove.Data[6] = 0xff, 0xff, 0xff // no such interface
	disturb(t, s)
	if _, err := c.Execute(remove); !errors.Is(err, unix.EBADMSG) {
		t.Errorf("write out of step: %v, want EBADMSG", err)
	}
	if got, err := c.Execute(listLinks); err != nil || len(got) != len(want) {
		t.Errorf("after that: %d links of %d, %v", len(got), len(want), err)
	}
}

// TestReplaceInNamespace checks that a new connection is in the same network namespace as the
// one that it replaces.
func TestReplaceInNamespace(t *testing.T) {
	c, s := dialed(t)
	want, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("SO_NETNS_COOKIE is not in this kernel (Linux 5.14)")
	}
	must.Do(t, err)
	disturb(t, s)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			_, err = c.Execute(listLinks)
		}
		done <- err
	}()
	if err := <-done; errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("not root")
	} else if err != nil {
		t.Fatal(err)
	}
	if got, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || got != want {
		t.Errorf("namespace %d (%v), want %d", got, err, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package vethtest runs a test in a new network namespace with a veth pair that has several queues.
// It is for tests only. The namespace ends with the test, and nothing on the host changes.
package vethtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// The names of the veth pair's ends. Both are in the namespace.
const (
	Dev  = "v0"
	Peer = "v1"
)

// Run runs f on a thread in a new network namespace with a veth pair. The pair's ends have the
// given number of queues and are up. f must not start goroutines or subtests that use the
// namespace. t.FailNow in f ends only f. If the namespace or the pair cannot be made, Run skips the
// test.
func Run[T testing.TB](t T, queues int, f func(t T)) {
	t.Helper()
	done := make(chan struct{})
	var skip string
	go func() {
		defer close(done)
		OnOwnThread(func() {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				skip = fmt.Sprintf("unshare of the network namespace: %v", err)
				return
			}
			if err := makePair(queues); err != nil {
				skip = fmt.Sprintf("veth pair: %v", err)
				return
			}
			f(t)
		})
	}()
	<-done
	if skip != "" {
		t.Skip(skip)
	}
}

// OnOwnThread runs f on a thread that ends with f. It never uses the main thread, because
// /proc/self shows the main thread's namespaces.
func OnOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			OnOwnThread(f)
			runtime.UnlockOSThread()
			close(done)
			return
		}
		defer close(done)
		f()
	}()
	<-done
}

// vethInfoPeer is VETH_INFO_PEER of linux/veth.h.
const vethInfoPeer = 1

func makePair(queues int) error {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: true})
	if err != nil {
		return err
	}
	defer c.Close()
	link := func(ae *netlink.AttributeEncoder, name string) {
		ae.String(unix.IFLA_IFNAME, name)
		ae.Uint32(unix.IFLA_NUM_TX_QUEUES, uint32(queues))
		ae.Uint32(unix.IFLA_NUM_RX_QUEUES, uint32(queues))
	}
	ae := netlink.NewAttributeEncoder()
	link(ae, Dev)
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_KIND, "veth")
		info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
			data.Do(vethInfoPeer, func() ([]byte, error) {
				peer := netlink.NewAttributeEncoder()
				link(peer, Peer)
				b, err := peer.Encode()
				return append(make([]byte, unix.SizeofIfInfomsg), b...), err
			})
			return nil
		})
		return nil
	})
	attrs, err := ae.Encode()
	if err != nil {
		return err
	}
	if err := execute(c, unix.RTM_NEWLINK, netlink.Create|netlink.Excl,
		append(make([]byte, unix.SizeofIfInfomsg), attrs...)); err != nil {
		return err
	}
	for _, name := range []string{Dev, Peer} {
		if err := noLinkLocal(c, name); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range []string{"lo", Dev, Peer} {
		if err := setUp(c, name, true); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func execute(c *netlink.Conn, typ netlink.HeaderType, flags netlink.HeaderFlags, data []byte) error {
	_, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: data,
	})
	return err
}

// noLinkLocal makes sure that an interface has only the IPv6 addresses that a test gives it. For a
// link-local address, the kernel would send packets seconds later, and tests that count packets
// would count them.
func noLinkLocal(c *netlink.Conn, name string) error {
	const addrGenMode, none = 8, 1 // IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, name)
	ae.Nested(unix.IFLA_AF_SPEC, func(spec *netlink.AttributeEncoder) error {
		spec.Nested(unix.AF_INET6, func(inet6 *netlink.AttributeEncoder) error {
			inet6.Uint8(addrGenMode, none)
			return nil
		})
		return nil
	})
	attrs, err := ae.Encode()
	if err != nil {
		return err
	}
	return execute(c, unix.RTM_NEWLINK, 0, append(make([]byte, unix.SizeofIfInfomsg), attrs...))
}

func setUp(c *netlink.Conn, name string, up bool) error {
	ifi := make([]byte, unix.SizeofIfInfomsg)
	if up {
		binary.NativeEndian.PutUint32(ifi[8:], unix.IFF_UP)
	}
	binary.NativeEndian.PutUint32(ifi[12:], unix.IFF_UP)
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, name)
	attrs, err := ae.Encode()
	if err != nil {
		return err
	}
	return execute(c, unix.RTM_NEWLINK, 0, append(ifi, attrs...))
}

// SetUp brings an interface of the namespace up or down.
func SetUp(t *testing.T, name string, up bool) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: true})
	must.Do(t, err)
	defer c.Close()
	if err := setUp(c, name, up); err != nil {
		t.Fatalf("set %s up=%v: %v", name, up, err)
	}
}

// AddAddress gives an interface an IPv4 address.
func AddAddress(t *testing.T, ifindex int, addr [4]byte, prefix uint8) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Strict: true})
	must.Do(t, err)
	defer c.Close()
	msg := make([]byte, unix.SizeofIfAddrmsg)
	msg[0], msg[1] = unix.AF_INET, prefix
	binary.NativeEndian.PutUint32(msg[4:], uint32(ifindex))
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.IFA_LOCAL, addr[:])
	ae.Bytes(unix.IFA_ADDRESS, addr[:])
	attrs, err := ae.Encode()
	must.Do(t, err)
	if err := execute(c, unix.RTM_NEWADDR, netlink.Create|netlink.Replace, append(msg, attrs...)); err != nil {
		t.Fatalf("add address: %v", err)
	}
}

// errDeadline is the error of Until if its condition never became true.
var errDeadline = errors.New("condition not met within a minute")

// Until waits up to a minute for a condition that the kernel makes true by itself.
func Until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; { // an emulated guest is slow
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, errDeadline)
		}
		runtime.Gosched()
	}
}

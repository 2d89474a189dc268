// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net"
	"runtime"

	"github.com/vishvananda/netns"
)

// InNetNS runs f on a thread of its own in the machine's network namespace. Sockets that f makes
// stay in this namespace after f has returned.
func (m *Machine) InNetNS(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		ns, err := netns.GetFromPath(m.NetNS())
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Dial connects from the machine to an address, as net.Dialer.DialContext does. The address must be
// numeric: Dial does not resolve names.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := m.InNetNS(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

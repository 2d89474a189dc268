// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"net"
	"runtime"

	"github.com/vishvananda/netns"
)

// InNetNS runs f on a thread in the machine's network namespace. The thread ends with f.
// Sockets that f makes stay in that namespace.
func (m *Machine) InNetNS(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
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

// Dial connects like net.Dialer's DialContext, from the machine. The address must be numeric:
// no names are looked up there.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := m.InNetNS(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

// contained checks the network namespace of a container. If the container has its own, packets that
// leave it lose the priority that they got by control group (net/core/dev.c: __dev_forward_skb).
// Then only the container's addresses show that a packet belongs to the lane. The lanes file must
// list them, because the uplink's classifier and steering compare them.
func (a *attachment) contained(pid int) error {
	if sameNetns(pid) == nil {
		return nil // the container uses the host's network
	}
	if a.lane.ByGroup {
		return fmt.Errorf("lane %s tells packets apart by control group, but packets that leave the container's own "+
			"network namespace lose that: choose a classifier by flow (force: classifier) and give the container's "+
			"addresses",
			a.lane.Name)
	}
	if a.options.Listeners != nil {
		return fmt.Errorf("the container has a network namespace of its own, in which the queue of a " +
			"connection is not known: --listeners cannot lead its connections")
	}
	addrs, err := addressesIn(pid)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if !a.lane.has(addr) {
			a.notef("%s is in no addrs of lane %s: its packets are not the lane's until %s lists it. If it is "+
				"masqueraded, its packets have the host's address and port on the uplink", addr, a.lane.Name,
				a.lane.Config)
		}
	}
	if len(addrs) == 0 {
		a.notef("the container has no address yet")
	}
	return nil
}

// has reports whether one of the lane's members has an address, or has none and so matches all.
func (l Lane) has(addr netip.Addr) bool {
	for _, m := range l.Members {
		if len(m.Addrs) == 0 {
			return true // a member without addrs matches any address
		}
		for _, s := range m.Addrs {
			if p, err := netip.ParsePrefix(s); err == nil && p.Contains(addr) {
				return true
			}
		}
	}
	return false
}

// addressesIn returns the addresses in a process's network namespace, without loopback and
// link-local addresses.
func addressesIn(pid int) ([]netip.Addr, error) {
	type result struct {
		addrs []net.Addr
		err   error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread, which is in the other namespace
		var r result
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			err = unix.Setns(pidfd, unix.CLONE_NEWNET) // Linux 5.8
			unix.Close(pidfd)
		}
		if err == nil {
			r.addrs, err = net.InterfaceAddrs()
		}
		r.err = err
		done <- r
	}()
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("addresses of process %d: %w", pid, r.err)
	}
	var out []netip.Addr
	for _, a := range r.addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		addr, ok := netip.AddrFromSlice(n.IP)
		if addr = addr.Unmap(); ok && addr.IsGlobalUnicast() {
			out = append(out, addr)
		}
	}
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package services takes the inventory of what serves on this host: listening sockets, their
// processes, units, containers and control groups, the devices by which they are reached, and their
// traffic. It reads socket diagnostics (sock_diag(7)), /proc, rtnetlink and, for TCP, an eBPF
// iterator. Watch counts packets by eBPF programs that end with it. It changes nothing, and judges
// nothing: package suggest does.
package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/internal/lifeline"
)

// Find takes the inventory of the calling thread's network namespace, without traffic. Without the
// rights for a part (other users' processes, eBPF), it leaves the part out and adds a note.
func Find(ctx context.Context) (*Inventory, error) {
	socks, err := listeners(&netlink.Handle{})
	if err != nil {
		return nil, err
	}
	conns, err := connections()
	if err != nil {
		return nil, err
	}
	inv := &Inventory{}
	table, err := processes(ctx, inodes(socks, conns))
	if err != nil {
		return nil, err
	}
	inv.Contenders = table.contenders
	inv.Elsewhere = table.elsewhere()
	if table.denied > 0 {
		inv.notef("%d processes of other users could not be read: their sockets have no owner here; run as root",
			table.denied)
	}
	var sockets map[place]unit
	if slices.ContainsFunc(socks, func(s socket) bool { return table.managed(table.holders[s.inode]) }) {
		if sockets, err = socketUnits(ctx); err != nil {
			inv.notef("systemd's sockets have no names here: %v", err)
		}
	}
	inv.Services = group(socks, table, sockets)
	for i := range inv.Services {
		s := &inv.Services[i]
		for _, l := range lifeline.Logins() {
			if slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.takes("tcp", l.Local) }) {
				s.Carries = l.String()
			}
		}
	}
	if err := inv.reach(); err != nil {
		return nil, err
	}
	if err := inv.connections(conns, table); err != nil {
		return nil, err
	}
	return inv, nil
}

func (inv *Inventory) notef(format string, args ...any) {
	inv.Notes = append(inv.Notes, fmt.Sprintf(format, args...))
}

func of(protocol string, port uint16) string { return protocol + "/" + strconv.Itoa(int(port)) }

// takes reports whether packets of a protocol to a local address are the endpoint's.
func (e *Endpoint) takes(protocol string, local netip.AddrPort) bool {
	return e.Protocol == protocol && e.Port == local.Port() && slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool {
		// A socket of :: takes IPv4 packets too, except with IPV6_V6ONLY. Then another one takes them.
		return a == local.Addr() || a.IsUnspecified() && (a.Is6() || local.Addr().Is4())
	})
}

// A claim is a listening socket and whom it belongs to.
type claim struct {
	socket
	owner
	pids   []int
	passed unit // the systemd socket, if systemd holds it
}

// group makes services from the listening sockets.
func group(socks []socket, t *processTable, units map[place]unit) []Service {
	var claims []claim
	same := map[string]string{} // a key that means the same service as another one
	var root func(key string) string
	root = func(key string) string {
		if to, ok := same[key]; ok {
			return root(to)
		}
		return key
	}
	at := map[place]string{} // key by local address: sockets there are one SO_REUSEPORT group
	for _, s := range socks {
		c := claim{socket: s, pids: t.holders[s.inode]}
		if t.managed(c.pids) {
			c.passed = units[s.place]
			if len(c.pids) > 1 {
				c.pids = without(c.pids, t.manager)
			}
		}
		c.owner = t.owner(c.pids)
		if c.key == "" {
			switch {
			case c.passed.name != "":
				c.key = "socket:" + c.passed.name
			case len(c.pids) > 0:
				c.key = "pid:" + strconv.Itoa(c.pids[0])
			default: // the kernel's own socket, or a process that could not be read
				c.key = "socket:" + of(s.protocol, s.local.Port())
			}
			if to, ok := at[s.place]; ok && root(to) != root(c.key) {
				same[root(c.key)] = root(to)
			}
			at[s.place] = c.key
		}
		claims = append(claims, c)
	}
	byKey := map[string]*Service{}
	var order []*Service
	for _, c := range claims {
		key := root(c.key)
		v := byKey[key]
		if v == nil {
			v = &Service{Name: c.name, Unit: c.unit, Container: c.container, Runtime: c.runtime, Cgroup: c.cgroup}
			byKey[key], order = v, append(order, v)
		}
		if c.passed.name != "" {
			v.Socket = c.passed.name
			switch {
			case len(c.pids) != 1 || !t.managed(c.pids):
			case c.passed.triggers != "": // not started yet
				v.Unit, v.Name = c.passed.triggers, strings.TrimSuffix(c.passed.triggers, ".service")
			default: // Accept=yes: an instance for each connection
				v.Name = strings.TrimSuffix(c.passed.name, ".socket")
			}
		}
		v.hold(t, c.pids)
		v.listen(c.socket)
	}
	out := make([]Service, 0, len(order))
	for _, v := range order {
		slices.SortFunc(v.Endpoints, func(a, b Endpoint) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
		})
		out = append(out, *v)
	}
	slices.SortStableFunc(out, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoints[0].Port, b.Endpoints[0].Port),
			cmp.Compare(a.Endpoints[0].Protocol, b.Endpoints[0].Protocol))
	})
	return out
}

// hold adds processes that hold a socket of the service.
func (v *Service) hold(t *processTable, pids []int) {
	for _, pid := range pids {
		at, found := slices.BinarySearchFunc(v.Processes, pid, func(p Process, pid int) int { return p.PID - pid })
		if !found {
			v.Processes = slices.Insert(v.Processes, at, t.process(pid))
		}
	}
}

// listen adds a listening socket to a service.
func (v *Service) listen(s socket) {
	i := slices.IndexFunc(v.Endpoints, func(e Endpoint) bool {
		return e.Protocol == s.protocol && e.Port == s.local.Port()
	})
	if i < 0 {
		i = len(v.Endpoints)
		v.Endpoints = append(v.Endpoints, Endpoint{Protocol: s.protocol, Port: s.local.Port()})
	}
	e := &v.Endpoints[i]
	e.Listeners++
	if at, found := slices.BinarySearchFunc(e.Addrs, s.local.Addr(), netip.Addr.Compare); found {
		e.ReusePort = true
	} else {
		e.Addrs = slices.Insert(e.Addrs, at, s.local.Addr())
	}
	if s.inode != 0 {
		at, _ := slices.BinarySearch(e.Inodes, s.inode)
		e.Inodes = slices.Insert(e.Inodes, at, s.inode)
	}
}

func without(all []int, x int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(y int) bool { return y == x })
}

// Endpoint returns the endpoint that takes packets of a protocol to a local address, and its service;
// nil if there is none.
func (inv *Inventory) Endpoint(protocol string, local netip.AddrPort) (s *Service, e *Endpoint) {
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			x := &inv.Services[i].Endpoints[j]
			if !x.takes(protocol, local) {
				continue
			}
			s, e = &inv.Services[i], x
			if slices.Contains(x.Addrs, local.Addr()) { // the kernel prefers the closest match
				return s, e
			}
		}
	}
	return s, e
}

// connections counts the TCP connections of each endpoint, also by NAPI, and adds the processes that
// have them to the services.
func (inv *Inventory) connections(conns []connection, t *processTable) error {
	here, err := localAddrs()
	if err != nil {
		return err
	}
	for _, c := range conns {
		s, e := inv.Endpoint("tcp", c.local)
		if e == nil {
			continue
		}
		if here.has(c.remote.Addr()) {
			e.Local++
		} else {
			e.Connections++
			if c.remote.Addr().Is6() {
				e.IPv6++
			}
		}
		s.hold(t, t.holders[c.inode])
	}
	all, err := sockiter.List(sockiter.Filter{Connections: true})
	if err != nil {
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EPERM) {
			err = errors.New("needs CAP_BPF and CAP_PERFMON")
		}
		inv.notef("the NAPIs of connections are not known: %v", err)
		return nil
	}
	for _, s := range all {
		if s.NAPI == 0 || s.State != established {
			continue
		}
		_, e := inv.Endpoint("tcp", s.Local)
		if e == nil || here.has(s.Remote.Addr()) {
			continue
		}
		at, found := slices.BinarySearchFunc(e.NAPIs, s.NAPI, func(n NAPIUse, id uint32) int {
			return cmp.Compare(n.ID, id)
		})
		if !found {
			e.NAPIs = slices.Insert(e.NAPIs, at, NAPIUse{ID: s.NAPI})
		}
		e.NAPIs[at].Connections++
	}
	return nil
}

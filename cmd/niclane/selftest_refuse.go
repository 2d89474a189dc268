// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/internal/knock"
)

// path is how packets to an address of the peer's leave: through the device.
func (s *selfTest) path(addr netip.Addr) (knock.Path, error) {
	p, err := knock.Find(addr)
	if err != nil {
		return p, err
	}
	if _, ok := p.Through(s.dev); !ok {
		return p, usagef("selftest: the route to %s leads over %s: want an address of the peer's that is reached by %s (--peer-address)", addr, p.Device, s.dev)
	}
	return p, nil
}

// refuse says why this device is not to be tried, before anything is.
func (s *selfTest) refuse() error {
	link, err := netlink.LinkByName(s.dev)
	if err != nil {
		return fmt.Errorf("device %s: %w", s.dev, err)
	}
	if link.Type() == "bond" {
		return fmt.Errorf("%s is a bond: want one of its cards, which are tested one at a time", s.dev)
	}
	if link.Attrs().OperState == netlink.OperDown || link.Attrs().OperState == netlink.OperLowerLayerDown {
		return fmt.Errorf("%s has no carrier: nothing can be shown on it", s.dev)
	}
	js, err := s.journals()
	if err != nil {
		return err
	}
	for _, j := range js {
		if slices.Contains(j.Head().Devices, s.dev) {
			return fmt.Errorf("%s has lanes, of %s: niclane rollback %[2]s first", s.dev, j.Head().Config)
		}
	}
	if err := apply.CheckPending(s.runDir); err != nil {
		return err
	}
	why := s.needed()
	if len(why) == 0 {
		return nil
	}
	text := strings.Join(why, ", and ")
	if !s.force {
		return fmt.Errorf("%s carries %s: a step that flaps the link cuts it for a while; --force tests it all the same", s.dev, text)
	}
	fmt.Fprintf(s.stderr, "niclane: warning: %s carries %s\n", s.dev, text)
	return nil
}

// needed says what of this host depends on the device.
func (s *selfTest) needed() (why []string) {
	if over, err := s.defaultRoute(); err != nil {
		why = append(why, fmt.Sprintf("perhaps the default route, which could not be read (%v)", err))
	} else if over {
		why = append(why, "the default route")
	}
	for _, client := range logins(os.Getpid()) {
		if p, err := knock.Find(client); err == nil {
			if _, ok := p.Through(s.dev); ok {
				why = append(why, fmt.Sprintf("this login, from %s", client))
			}
		}
	}
	return why
}

// defaultRoute says whether one leads over the device, or over what is on it.
func (s *selfTest) defaultRoute() (bool, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return false, err
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		hops := []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
		if len(r.MultiPath) > 0 {
			hops = r.MultiPath
		}
		for _, h := range hops {
			if s.onTop(h.LinkIndex) {
				return true, nil
			}
		}
	}
	return false, nil
}

// onTop says whether a link is the device, or is on it: a VLAN, its bond or
// bridge, or what is on these.
func (s *selfTest) onTop(index int) bool {
	dev, err := netlink.LinkByName(s.dev)
	if err != nil {
		return false
	}
	for range 8 { // deeper than anybody stacks
		if index == dev.Attrs().Index || index != 0 && index == dev.Attrs().MasterIndex {
			return true
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return false
		}
		if index = link.Attrs().ParentIndex; index == 0 {
			return false
		}
	}
	return false
}

// logins are the other ends of the connections that this process was started
// over, as sshd says in the environment of what it starts. sudo and tmux drop
// that, so all ancestors are asked.
func logins(pid int) (out []netip.Addr) {
	for pid > 1 {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for _, v := range bytes.Split(env, []byte{0}) {
			text, ok := strings.CutPrefix(string(v), "SSH_CONNECTION=")
			if !ok {
				continue
			}
			from, _, _ := strings.Cut(text, " ")
			if a, err := netip.ParseAddr(from); err == nil && !slices.Contains(out, a.Unmap()) {
				out = append(out, a.Unmap())
			}
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return out
		}
		// The name, in parentheses, can have anything in it (proc(5)).
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			return out
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return out
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/lifeline"
	"github.com/niclane/niclane/internal/traffic/probe"
	"github.com/niclane/niclane/lane/apply"
)

// path returns the path of packets to addr, an address of the peer. If the path does not lead
// through the device, path returns an error.
func (s *selfTest) path(addr netip.Addr) (probe.Path, error) {
	p, err := probe.Find(addr)
	if err != nil {
		return p, err
	}
	if _, ok := p.Through(s.dev); !ok {
		return p, cli.Usagef("selftest: the route to %s leads over %s: want an address of the peer that "+
			"is reached through %s (--peer-address)", addr, p.Device, s.dev)
	}
	return p, nil
}

// refuse returns an error if this device must not be tested. selftest calls it before it changes
// anything.
func (s *selfTest) refuse() error {
	link, err := netlink.LinkByName(s.dev)
	if err != nil {
		return fmt.Errorf("device %s: %w", s.dev, err)
	}
	if link.Type() == "bond" {
		return fmt.Errorf("%s is a bond: want one of its cards, which are tested one at a time", s.dev)
	}
	if link.Attrs().OperState == netlink.OperDown || link.Attrs().OperState == netlink.OperLowerLayerDown {
		return fmt.Errorf("%s has no carrier: nothing can be tested on it", s.dev)
	}
	js, err := s.Engine().Journals()
	if err != nil {
		return err
	}
	for _, j := range js {
		if slices.Contains(j.Head().Devices, s.dev) {
			return fmt.Errorf("%s has lanes, of %s: niclane rollback %[2]s first", s.dev, j.Head().Config)
		}
	}
	if err := apply.CheckPending(s.RunDir); err != nil {
		return err
	}
	why := lifeline.On(s.dev)
	if len(why) == 0 {
		return nil
	}
	text := strings.Join(why, ", and ")
	if !s.force {
		return fmt.Errorf("%s carries %s: a step that flaps the link cuts it for a while; "+
			"--force tests it all the same", s.dev, text)
	}
	fmt.Fprintf(s.Stderr, "niclane: warning: %s carries %s\n", s.dev, text)
	return nil
}

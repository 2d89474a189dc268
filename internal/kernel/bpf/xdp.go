// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// openProgram opens the program with an ID. If it is gone, the error is fs.ErrNotExist.
func openProgram(id uint32) (*ebpf.Program, *ebpf.ProgramInfo, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return nil, nil, fmt.Errorf("BPF program %d: %w", id, err)
	}
	info, err := p.Info()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("BPF program %d: %w", id, err), p.Close())
	}
	return p, info, nil
}

// programName returns a program's name, or its number if it has no name, or "" if it is
// gone.
func programName(id uint32) (string, error) {
	p, info, err := openProgram(id)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer p.Close()
	return cmp.Or(info.Name, numbered(id)), nil
}

// numbered returns the text that stands for the name of a program without one: "(ID)".
func numbered(id uint32) string { return fmt.Sprintf("(%d)", id) }

// readXDP returns the program in the slot, niclane's or foreign. If there is also a program in
// the hardware (offload), readXDP returns the one that is not in the hardware.
func (c *Client) readXDP(x device.XDP) (device.Object, error) {
	slots, err := c.slots(x.Dev)
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	x.Mode = slots[0].mode
	x.Program, err = programName(slots[0].program)
	if x.Program == "" { // removed meanwhile
		return nil, err
	}
	return x, nil
}

func (c *Client) writeXDP(old, next device.Object, x device.XDP) error {
	switch {
	case old != nil && next != nil:
		return fmt.Errorf("%s: %w: an XDP program is not exchanged in place", x.Key(), unix.EOPNOTSUPP)
	case next == nil:
		return c.detach(x)
	}
	if x.Program != IngressProgram || x.Mode != "native" && x.Mode != "generic" {
		return fmt.Errorf("%s: %w: program %q in %s mode: niclane has only %s, native or generic",
			x.Key(), unix.EINVAL, x.Program, x.Mode, IngressProgram)
	}
	if err := c.forgetXDP(); err != nil {
		return err
	}
	l := c.load(variantOf(x))
	defer l.close()
	if l.err != nil {
		return l.err
	}
	err := c.setSlot(x.Dev, x.Mode, l.Programs[x.Program].FD(), -1)
	if err != nil {
		return fmt.Errorf("attach %s to %s in %s mode: %w", x.Program, x.Dev, x.Mode, c.taken(x.Dev, err))
	}
	return nil
}

// taken turns an error of setSlot about an occupied slot into EBUSY, with the name of the
// program in the slot. It returns other errors unchanged.
func (c *Client) taken(dev string, err error) error {
	if !isTaken(err) {
		return err
	}
	slots, serr := c.slots(dev)
	if serr != nil {
		return errors.Join(err, serr)
	}
	for _, s := range slots {
		name, _ := programName(s.program)
		return fmt.Errorf("%w: the slot is taken by %q, BPF program %d in %s mode (%w)", unix.EBUSY, name, s.program,
			s.mode, err)
	}
	return err
}

// detach empties the slot if it holds the program that x names, niclane's or foreign.
func (c *Client) detach(x device.XDP) error {
	if err := c.forgetXDP(); err != nil {
		return err
	}
	slots, err := c.slots(x.Dev)
	if err != nil {
		return err
	}
	for _, s := range slots {
		p, info, err := openProgram(s.program)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("detach XDP from %s: %w", x.Dev, err)
		}
		defer p.Close()
		if s.mode != x.Mode || cmp.Or(info.Name, numbered(s.program)) != x.Program {
			continue
		}
		err = c.setSlot(x.Dev, s.mode, -1, p.FD())
		if errors.Is(err, unix.EBUSY) { // held by a bpf_link, as newer loaders attach
			if done, lerr := c.detachLink(x.Dev, s.program); done || lerr != nil {
				err = lerr
			}
		}
		if err != nil {
			return fmt.Errorf("detach %s from %s: %w", x.Program, x.Dev, c.taken(x.Dev, err))
		}
		return nil
	}
	err = fmt.Errorf("%w: the slot is empty", unix.ENOENT)
	if len(slots) > 0 {
		err = c.taken(x.Dev, unix.EBUSY)
	}
	return fmt.Errorf("detach %s in %s mode from %s: %w", x.Program, x.Mode, x.Dev, err)
}

// detachLink detaches the bpf_link that holds a program in the slot of dev. It reports
// whether there is such a link.
func (c *Client) detachLink(dev string, program uint32) (done bool, err error) {
	index, err := c.tc.Index(dev)
	if err != nil {
		return false, err
	}
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.Type != link.XDPType || uint32(info.Program) != program {
			continue
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == index {
			return true, it.Link.Detach()
		}
	}
	return false, it.Err()
}

// xdpMaps are the maps of niclane's XDP program on one device.
type xdpMaps struct {
	table[ingressTarget]
	dev      string
	program  uint32 // ID
	lanes    *ebpf.Map
	cpus     *ebpf.Map
	counters *ebpf.Map
	tunnels  *ebpf.Map // nil in program versions that do not look into tunnels
	cpusID   ebpf.MapID
}

func (m *xdpMaps) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.table.close(), m.lanes.Close(), m.cpus.Close(), m.counters.Close(), m.tunnels.Close())
}

func (m *xdpMaps) take(em *ebpf.Map, info *ebpf.MapInfo) bool {
	switch {
	case info.Name == ingressMapNlLanes && m.lanes == nil && info.ValueSize == uint32(unsafe.Sizeof(lane{})):
		m.lanes = em
	case info.Name == ingressMapNlCpus && m.cpus == nil && info.Type == ebpf.CPUMap:
		m.cpus = em
		m.cpusID, _ = info.ID()
	case info.Name == ingressMapNlCounters && m.counters == nil && info.ValueSize == uint32(unsafe.Sizeof(counters{})):
		m.counters = em
	default:
		return takeTunnels(&m.tunnels, em, info) || m.table.take(em, info)
	}
	return true
}

func (m *xdpMaps) complete() bool {
	return m.table.complete() && m.lanes != nil && m.cpus != nil && m.counters != nil
}

// forgetXDP closes the maps of the XDP program used last.
func (c *Client) forgetXDP() error {
	m := c.lastXDP
	c.lastXDP = nil
	return m.close()
}

// openXDPAnew is openXDP, but always looks the program up again. So it sees at once if another
// process has changed the slot.
func (c *Client) openXDPAnew(dev string) (*xdpMaps, error) {
	c.usesXDP = maxUses
	return c.openXDP(dev)
}

// openXDP returns the maps of niclane's program on a device, or nil if it is not attached.
func (c *Client) openXDP(dev string) (*xdpMaps, error) {
	if c.lastXDP != nil && c.lastXDP.dev == dev && c.usesXDP < maxUses {
		c.usesXDP++
		return c.lastXDP, nil
	}
	slots, err := c.slots(dev)
	if err != nil {
		return nil, err
	}
	c.usesXDP = 0
	for _, s := range slots {
		if c.lastXDP != nil && c.lastXDP.dev == dev && c.lastXDP.program == s.program {
			return c.lastXDP, nil
		}
		m := &xdpMaps{dev: dev, program: s.program}
		err := eachMap(s.program, m.take)
		if err == nil && !m.complete() {
			err = fmt.Errorf("%w: BPF program %d lacks its maps", errNotOurs, s.program)
		}
		if err != nil {
			err = errors.Join(err, m.close())
		}
		if errors.Is(err, errNotOurs) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = c.forgetXDP()
		}
		if err != nil {
			return nil, fmt.Errorf("XDP of %s: %w", dev, err)
		}
		c.lastXDP = m
		return m, nil
	}
	return nil, c.forgetXDP()
}

// haveXDP is openXDP, but a missing program is an error.
func (c *Client) haveXDP(dev string) (*xdpMaps, error) {
	m, err := c.openXDP(dev)
	if m == nil && err == nil {
		err = fmt.Errorf("%w: %s is not in the XDP slot of %s", unix.ENOENT, IngressProgram, dev)
	}
	return m, err
}

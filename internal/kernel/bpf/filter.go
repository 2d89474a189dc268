// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lane/device"
)

// A Client works in the network namespace of its tc client. Callers use it on threads of
// that namespace. It is not safe for concurrent use.
type Client struct {
	tc *tc.Client
	// last holds the maps of the filter used last. Callers write many entries of one filter in
	// a row, and to look up the filter costs more than to write an entry. uses counts the uses
	// since the last lookup.
	last *maps
	uses int
	// loading holds, for each variant, the channels that deliver what Prepare loads.
	loading map[variant][]chan programSet
	// nl reads and writes XDP slots; it is nil until the first use.
	nl *netlink.Conn
	// lastXDP and usesXDP are the same as last and uses, for XDP programs.
	lastXDP *xdpMaps
	usesXDP int
	// threads are the PIDs of cpumap threads found so far, by name.
	threads map[string]int
}

// maxUses is the number of uses after which the client looks the filter up again.
const maxUses = 64

// maps are the maps of one attached program. While niclane's lock is held, no other process of
// niclane changes them.
type maps struct {
	table[egressTarget]
	defaults *ebpf.Map
	sent     *ebpf.Map // nil in program versions that do not count
	// translation is nil in program versions that do not look up original addresses.
	translation *ebpf.Map
	tunnels     *ebpf.Map // nil in program versions that do not look into tunnels
	shares      shareMaps // nil in program versions without departure times
	filter      device.Filter
	program     uint32 // ID
}

func (m *maps) complete() bool { return m.table.complete() && m.defaults != nil }

// take stores em if it is a map that m needs and does not have yet. It reports whether it has
// stored em.
func (m *maps) take(em *ebpf.Map, info *ebpf.MapInfo) bool {
	if info.Name == egressMapNlDefault && m.defaults == nil {
		m.defaults = em
		return true
	}
	if info.Name == egressMapNlSent && info.ValueSize == uint32(unsafe.Sizeof(counters{})) && m.sent == nil {
		m.sent = em
		return true
	}
	if info.Name == egressMapNlTranslation && info.ValueSize == uint32(unsafe.Sizeof(translation{})) &&
		m.translation == nil {
		m.translation = em
		return true
	}
	return m.shares.take(em, info) || takeTunnels(&m.tunnels, em, info) || m.table.take(em, info)
}

func (m *maps) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.table.close(), m.defaults.Close(), m.sent.Close(), m.translation.Close(),
		m.tunnels.Close(), m.shares.close())
}

// New returns a client that attaches by t. The caller keeps t and closes it.
func New(t *tc.Client) *Client { return &Client{tc: t} }

// Anew makes the client look up the filter and the XDP program again at the next use, and read
// their patterns again. Callers use it when other programs may have changed them.
func (c *Client) Anew() {
	c.uses, c.usesXDP = maxUses, maxUses
	if c.last != nil {
		c.last.known, c.last.bits = nil, nil
	}
	if c.lastXDP != nil {
		c.lastXDP.known, c.lastXDP.bits = nil, nil
	}
}

// forget closes the maps of the filter used last.
func (c *Client) forget() error {
	m := c.last
	c.last = nil
	return m.close()
}

func (c *Client) readFilter(f device.Filter) (device.Object, error) {
	s, err := c.state(f)
	if s == nil || err != nil {
		return nil, err
	}
	f.Program = s.Name
	if s.Type != "bpf" {
		f.Program = "(" + s.Type + ")"
	}
	return f, nil
}

// state returns the filter attached at f's place, or nil if there is none.
func (c *Client) state(f device.Filter) (*device.FilterState, error) {
	if f.Parent != TCXEgress {
		return c.tc.Filter(f)
	}
	id, name, err := c.tcxProgram(f.Dev)
	if id == 0 || err != nil {
		return nil, err
	}
	return &device.FilterState{Filter: f, Type: "bpf", Name: name, ProgramID: id}, nil
}

func (c *Client) writeFilter(old, next device.Object, f device.Filter) error {
	switch {
	case old != nil && next != nil:
		return fmt.Errorf("%s: %w: a filter's program is not exchanged in place", f.Key(), unix.EOPNOTSUPP)
	case next == nil:
		if err := c.forget(); err != nil {
			return err
		}
		if f.Parent == TCXEgress {
			return c.writeTCX(nil, f)
		}
		return c.tc.DeleteBPF(f)
	}
	if f.Program == EgressProgram && f.Parent == TCXEgress {
		return c.writeTCX(next, f)
	}
	if f.Program != EgressProgram || f.Parent != "egress" {
		return fmt.Errorf("%s: program %q at %s: niclane has only %s, at egress", f.Key(), f.Program, f.Parent,
			EgressProgram)
	}
	l := c.load(variantOfFilter(f))
	defer l.close()
	if l.err != nil {
		return l.err
	}
	return c.tc.AddBPF(f, l.Programs[f.Program].FD())
}

// errNotOurs means that a filter or an XDP program is not niclane's.
var errNotOurs = errors.New("not niclane's")

// open returns the maps of an attached filter, or nil if there is no such filter.
func (c *Client) open(f device.Filter) (*maps, error) {
	if c.last != nil && c.last.filter.Key() == f.Key() && c.uses < maxUses {
		c.uses++
		return c.last, nil
	}
	s, err := c.state(f)
	if s == nil || err != nil {
		return nil, err
	}
	c.uses = 0
	if s.Type != "bpf" {
		return nil, fmt.Errorf("%s: %w: %s", f.Key(), errNotOurs, s.Type)
	}
	if c.last != nil && c.last.program == s.ProgramID && c.last.filter.Key() == f.Key() {
		return c.last, nil
	}
	m, err := openMaps(s.ProgramID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Key(), err)
	}
	m.filter = f
	if err := c.forget(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	c.last = m
	return m, nil
}

func openMaps(program uint32) (*maps, error) {
	m := &maps{program: program}
	err := eachMap(program, m.take)
	if err == nil && !m.complete() {
		err = fmt.Errorf("%w: BPF program %d lacks its maps", errNotOurs, program)
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// eachMap opens each map of one of niclane's programs and gives it to take. If take returns
// false, eachMap closes the map.
func eachMap(program uint32, take func(*ebpf.Map, *ebpf.MapInfo) bool) error {
	p, info, err := openProgram(program)
	if err != nil {
		return err
	}
	defer p.Close()
	if !strings.HasPrefix(info.Name, prefix) {
		return fmt.Errorf("%w: BPF program %d is %q", errNotOurs, program, info.Name)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("BPF map %d: %w", id, err)
		}
		info, err := m.Info()
		if err != nil {
			return errors.Join(fmt.Errorf("BPF map %d: %w", id, err), m.Close())
		}
		if !take(m, info) {
			if err := m.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/tc"
)

// EgressProgram is the classifier of what leaves, in the kernel and here.
const EgressProgram = "niclane_egress"

// prefix begins the names of all programs of niclane's.
const prefix = "niclane_"

// A Client works in the network namespace of its tc client. It is not safe for
// concurrent use.
type Client struct {
	tc *tc.Client
	// maps of the filter used last: entries come in long runs, and looking
	// the filter up costs more than the entry. uses counts since it was
	// last looked up.
	last *maps
	uses int
}

// maxUses bounds how long a filter is taken to be attached still.
const maxUses = 64

// maps are one attached program's. While an applier holds them, nobody else
// changes them.
type maps struct {
	filter   device.Filter
	program  uint32 // ID
	patterns *ebpf.Map
	flows    *ebpf.Map
	known    *[maxPatterns]pattern // what patterns holds, once read
}

func (m *maps) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.patterns.Close(), m.flows.Close())
}

// New returns a client that attaches by t, which stays the caller's.
func New(t *tc.Client) *Client { return &Client{tc: t} }

// Close releases what the client holds open.
func (c *Client) Close() error {
	m := c.last
	c.last = nil
	return m.close()
}

// Read returns the present value of the filter or entry with o's identity, nil
// if there is none.
func (c *Client) Read(o device.Object) (device.Object, error) {
	switch o := o.(type) {
	case device.Filter:
		c.uses = maxUses // somebody looks at it: look at it anew
		return c.readFilter(o)
	case device.FilterEntry:
		return c.readEntry(o)
	}
	return nil, fmt.Errorf("object kind %q is not BPF's", o.Kind())
}

// Write brings the filter or entry from old to new; nil means absent. Removing
// a filter removes its entries.
func (c *Client) Write(old, new device.Object) error {
	o := new
	if o == nil {
		o = old
	}
	switch o := o.(type) {
	case device.Filter:
		return c.writeFilter(old, new, o)
	case device.FilterEntry:
		if err := c.writeEntry(old, new, o); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
		return nil
	}
	return fmt.Errorf("object kind %q is not BPF's", o.Kind())
}

func (c *Client) readFilter(f device.Filter) (device.Object, error) {
	s, err := c.tc.Filter(f)
	if s == nil || err != nil {
		return nil, err
	}
	f.Program = s.Name
	if s.Type != "bpf" {
		f.Program = "(" + s.Type + ")"
	}
	return f, nil
}

func (c *Client) writeFilter(old, new device.Object, f device.Filter) error {
	switch {
	case old != nil && new != nil:
		return fmt.Errorf("%s: %w: a filter's program is not exchanged in place", f.Key(), unix.EOPNOTSUPP)
	case new == nil:
		if err := c.Close(); err != nil {
			return err
		}
		return c.tc.DeleteBPF(f)
	}
	if f.Program != EgressProgram || f.Parent != "egress" {
		return fmt.Errorf("%s: program %q at %s: niclane has only %s, at egress", f.Key(), f.Program, f.Parent, EgressProgram)
	}
	var objs egressObjects
	if err := loadEgressObjects(&objs, nil); err != nil {
		return fmt.Errorf("load %s: %w", f.Program, err)
	}
	return errors.Join(c.tc.AddBPF(f, objs.NiclaneEgress.FD()), objs.Close())
}

// Load checks that the kernel takes the programs: it loads them and attaches
// them nowhere. A missing bpf(2) is ENOSYS, a missing privilege EPERM.
func Load() error {
	var objs egressObjects
	if err := loadEgressObjects(&objs, nil); err != nil {
		return err
	}
	return objs.Close()
}

// errNotOurs is a filter that is not one of niclane's.
var errNotOurs = errors.New("not a filter of niclane's")

// open finds the maps of an attached filter; nil if there is no such filter.
func (c *Client) open(f device.Filter) (*maps, error) {
	if c.last != nil && c.last.filter.Key() == f.Key() && c.uses < maxUses {
		c.uses++
		return c.last, nil
	}
	s, err := c.tc.Filter(f)
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
		return nil, nil // removed in between
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Key(), err)
	}
	m.filter = f
	if err := c.Close(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	c.last = m
	return m, nil
}

func openMaps(program uint32) (*maps, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return nil, fmt.Errorf("BPF program %d: %w", program, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("BPF program %d: %w", program, err)
	}
	if !strings.HasPrefix(info.Name, prefix) {
		return nil, fmt.Errorf("%w: BPF program %d is %q", errNotOurs, program, info.Name)
	}
	ids, _ := info.MapIDs()
	m := &maps{program: program}
	for _, id := range ids {
		if err := m.open(id); err != nil {
			return nil, errors.Join(err, m.close())
		}
	}
	if m.patterns == nil || m.flows == nil {
		return nil, errors.Join(fmt.Errorf("%w: BPF program %d lacks its maps", errNotOurs, program), m.close())
	}
	return m, nil
}

func (m *maps) open(id ebpf.MapID) error {
	em, err := ebpf.NewMapFromID(id)
	if err != nil {
		return fmt.Errorf("BPF map %d: %w", id, err)
	}
	info, err := em.Info()
	switch {
	case err != nil:
		return errors.Join(fmt.Errorf("BPF map %d: %w", id, err), em.Close())
	case info.Name == egressMapNlPatterns && m.patterns == nil && info.ValueSize == sizeofPattern:
		m.patterns = em
		return nil
	case info.Name == egressMapNlFlows && m.flows == nil && info.KeySize == sizeofFlowKey:
		m.flows = em
		return nil
	}
	return em.Close()
}

// SPDX-License-Identifier: Apache-2.0

package sockclass

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/load"
)

// classesName is the name of the map of both programs.
const classesName = "niclane_class"

// hooks are the attach points of the programs, in the order of attaching.
var hooks = [...]struct {
	program string
	attach  ebpf.AttachType
}{
	{"niclane_sock", ebpf.AttachCGroupInetSockCreate},
	{"niclane_sockops", ebpf.AttachCGroupSockOps},
}

// States of a class (sock.c).
const (
	stateMade    = iota // a writer is giving existing sockets the priority
	stateSettled        // existing sockets have the priority
	stateRemoved        // the programs do nothing
)

// class is struct class of sock.c.
type class struct {
	Netns    uint64 // cookie
	Priority uint32
	Previous uint32 // the old priority while a writer changes it, else 0
	State    uint32
	_        uint32
}

func putClass(m *ebpf.Map, c class) error {
	if err := m.Put(uint32(0), c); err != nil {
		return fmt.Errorf("map %s: %w", classesName, err)
	}
	return nil
}

// newClasses makes a map for a class. The map exists as long as a program uses it.
func newClasses() (*ebpf.Map, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, err
	}
	m, err := ebpf.NewMap(spec.Maps[classesName])
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", classesName, err)
	}
	return m, nil
}

// A program is one of niclane's programs on a group.
type program struct {
	hook    int
	prog    *ebpf.Program
	classes *ebpf.Map
	mapID   ebpf.MapID
	class   class
}

func (p *program) Close() error { return errors.Join(p.prog.Close(), p.classes.Close()) }

func (p *program) detach(g *group) error {
	err := link.RawDetachProgram(link.RawDetachProgramOptions{
		Target: g.fd(), Program: p.prog, Attach: hooks[p.hook].attach,
	})
	if err != nil {
		return fmt.Errorf("detach %s: %w", hooks[p.hook].program, err)
	}
	return nil
}

type programs []*program

// Close closes all programs and their maps.
func (ps programs) Close() error {
	var errs []error
	for _, p := range ps {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// of returns the programs whose class is of the network namespace with the cookie netns.
func (ps programs) of(netns uint64) programs {
	var own programs
	for _, p := range ps {
		if p.class.Netns == netns {
			own = append(own, p)
		}
	}
	return own
}

// other returns the first network namespace of the programs that is not netns, as a cookie; 0 if
// there is none.
func (ps programs) other(netns uint64) uint64 {
	for _, p := range ps {
		if p.class.Netns != netns {
			return p.class.Netns
		}
	}
	return 0
}

// whole reports whether each hook has its program, all with one map, and no change is
// unfinished.
func (ps programs) whole() bool {
	if len(ps) != len(hooks) {
		return false
	}
	for i, p := range ps {
		if p.hook != i || p.mapID != ps[0].mapID || p.class.State != stateSettled {
			return false
		}
	}
	return true
}

// classes returns the map that a change keeps: that of the first program; nil if there is none.
func (ps programs) classes() *ebpf.Map {
	if len(ps) == 0 {
		return nil
	}
	return ps[0].classes
}

// priorities returns all priorities that the programs may have given to sockets.
func (ps programs) priorities() []uint32 {
	var out []uint32
	for _, p := range ps {
		out = append(out, p.class.Priority)
		if p.class.Previous != 0 {
			out = append(out, p.class.Previous)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// attach makes sure that the group has one program per hook, with the map classes. ps are the
// present programs. Several programs per hook, or different maps, come from two simultaneous
// writers, which niclane's lock prevents. attach detaches such surplus programs.
func (c *Client) attach(g *group, ps programs, classes *ebpf.Map) error {
	var have [len(hooks)]bool
	for _, p := range ps {
		if have[p.hook] || p.mapID != ps[0].mapID {
			if err := p.detach(g); err != nil {
				return err
			}
			continue
		}
		have[p.hook] = true
	}
	if !slices.Contains(have[:], false) {
		return nil
	}
	spec, err := loadSock()
	if err != nil {
		return err
	}
	coll, err := load.Collection(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{classesName: classes},
	})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer coll.Close()
	for i, h := range hooks {
		if have[i] {
			continue
		}
		err := link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: g.fd(), Program: coll.Programs[h.program], Attach: h.attach, Flags: unix.BPF_F_ALLOW_MULTI,
		})
		if errors.Is(err, unix.EPERM) {
			err = errors.Join(err, c.exclusive(g, h.attach))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.program, err)
		}
	}
	return nil
}

// exclusive returns an error that names the program because of which the kernel may refuse
// another one. A program that was attached without BPF_F_ALLOW_MULTI excludes others on its
// group. Without BPF_F_ALLOW_OVERRIDE, it also excludes them on the groups below
// (hierarchy_allows_attach in kernel/bpf/cgroup.c).
func (c *Client) exclusive(g *group, attach ebpf.AttachType) error {
	for name := g.name; ; name = path.Dir(name) {
		if p, err := c.open(name); err == nil {
			r, err := link.QueryPrograms(link.QueryOptions{Target: p.fd(), Attach: attach})
			p.Close()
			if err == nil && len(r.Programs) > 0 {
				return fmt.Errorf("BPF program %d on %s may exclude others (if it was attached without "+
					"BPF_F_ALLOW_MULTI)",
					r.Programs[0].ID, name)
			}
		}
		if name == "/" {
			return nil
		}
	}
}

// attachedTo returns niclane's programs on a group, in the order of hooks.
func attachedTo(g *group) (programs, error) {
	var found programs
	for i, h := range hooks {
		r, err := link.QueryPrograms(link.QueryOptions{Target: g.fd(), Attach: h.attach})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", h.attach, err), found.Close())
		}
		for _, a := range r.Programs {
			p, err := openProgram(a.ID, h.program)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("BPF program %d: %w", a.ID, err), found.Close())
			}
			if p != nil {
				p.hook = i
				found = append(found, p)
			}
		}
	}
	return found, nil
}

// openProgram opens one of niclane's programs. It returns nil if the program is foreign or
// gone.
func openProgram(id ebpf.ProgramID, name string) (*program, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := withClasses(prog, name)
	if p == nil || err != nil {
		return nil, errors.Join(err, prog.Close())
	}
	return p, nil
}

func withClasses(prog *ebpf.Program, name string) (*program, error) {
	info, err := prog.Info()
	if err != nil || info.Name != name {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, fmt.Errorf("BPF map %d: %w", id, err)
		}
		info, err := m.Info()
		if err == nil && info.Name == classesName {
			p := &program{prog: prog, classes: m, mapID: id}
			if err = m.Lookup(uint32(0), &p.class); err == nil {
				return p, nil
			}
		}
		if err := errors.Join(err, m.Close()); err != nil {
			return nil, fmt.Errorf("BPF map %d: %w", id, err)
		}
	}
	return nil, nil // a foreign program with the same name
}

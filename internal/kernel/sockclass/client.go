// SPDX-License-Identifier: Apache-2.0

package sockclass

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lane/device"
)

// A Client works in the network namespace in which it was opened, and is to be
// used on threads of that namespace. It is not safe for concurrent use.
type Client struct {
	v2    string
	netns uint64 // cookie
}

// Open returns a client for the groups below v2, where the unified hierarchy is
// mounted; "" if it is not, and then no group exists. SO_NETNS_COOKIE needs
// Linux 5.14; before it is ENOPROTOOPT.
func Open(v2 string) (*Client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return nil, fmt.Errorf("cookie of the network namespace: %w", err)
	}
	return &Client{v2: v2, netns: cookie}, nil
}

// A group is an open directory of a control group.
type group struct {
	name string // "/system.slice/memcached.service"
	dir  *os.File
}

func (g *group) fd() int { return int(g.dir.Fd()) }

func (g *group) Close() error { return g.dir.Close() }

// open opens a group. One that does not exist is ENOENT.
func (c *Client) open(name string) (*group, error) {
	if c.v2 == "" {
		return nil, fmt.Errorf("control group %s: no unified hierarchy is mounted: %w", name, unix.ENOENT)
	}
	name = path.Clean("/" + name)
	dir, err := os.OpenFile(path.Join(c.v2, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	return &group{name: name, dir: dir}, nil
}

// Read returns the present class of o's group, nil if it has none of this
// network namespace, or does not exist.
//
// A class that is not whole, because a writer was killed or somebody detached
// one of its programs, is one without a Priority. It equals neither absence nor
// any class that is wanted, so that whoever plans or rolls back writes it.
func (c *Client) Read(o device.Object) (device.Object, error) {
	cc, ok := o.(device.CgroupClass)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not a class of a control group", o.Kind())
	}
	g, err := c.open(cc.Cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer g.Close()
	a, err := attachedTo(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Key(), err)
	}
	defer a.Close()
	own := a.of(c.netns)
	if len(own) == 0 {
		return nil, nil
	}
	cc.Priority = ""
	if own.whole() {
		cc.Priority = tc.FormatHandle(own[0].class.Priority)
	}
	return cc, nil
}

// Write brings the class of a group from old to new; nil means absent. No such
// group is ENOENT, one with a class where old is nil EEXIST, one with a class
// of another network namespace EBUSY, and one where somebody attached a program
// that admits no other EPERM.
//
// Sockets are treated after the programs are attached, so that none falls
// between. At removal the programs are first made to do nothing, then sockets
// are treated, and only then the programs detached: killed in between, there is
// still something for Read to find and the priority for Write to know.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	cc, ok := o.(device.CgroupClass)
	if !ok {
		return fmt.Errorf("object kind %q is not a class of a control group", o.Kind())
	}
	if err := c.write(cc, old != nil, next != nil); err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	return nil
}

func (c *Client) write(cc device.CgroupClass, old, next bool) error {
	g, err := c.open(cc.Cgroup)
	if err != nil {
		return err
	}
	defer g.Close()
	a, err := attachedTo(g)
	if err != nil {
		return err
	}
	defer a.Close()
	own := a.of(c.netns)
	switch {
	case len(own) < len(a):
		return fmt.Errorf("%w: niclane gives it a class in another network namespace, that of cookie %d: roll back "+
			"there, or detach its programs with bpftool-cgroup(8)",
			unix.EBUSY, a.other(c.netns))
	case !old && len(own) > 0:
		return fmt.Errorf("it has a class: %w", unix.EEXIST)
	case old && len(own) == 0:
		return fmt.Errorf("it has no class: %w", unix.ENOENT)
	}
	above, err := c.above(g)
	if err != nil {
		return err
	}
	if !next {
		return c.remove(g, own, above)
	}
	priority, err := tc.ParseHandle(cc.Priority)
	if err != nil {
		return err
	}
	if priority&0xffff == 0 {
		return fmt.Errorf("%w: priority %q names no class", unix.EINVAL, cc.Priority)
	}
	return c.set(g, own, above, priority)
}

// set gives g a class, whatever of one it has.
func (c *Client) set(g *group, own programs, above, priority uint32) error {
	to := class{Netns: c.netns, Priority: priority, State: stateMade}
	from := append(own.priorities(), above)
	classes := own.classes()
	if classes == nil {
		m, err := newClasses()
		if err != nil {
			return err
		}
		defer m.Close()
		classes = m
	} else {
		was := own[0].class
		if was.Previous != 0 && was.Previous != priority && was.Priority != priority {
			// Only one can be kept in mind: end what was begun.
			if err := c.treat(g, []uint32{was.Previous, above}, was.Priority); err != nil {
				return err
			}
			was.Previous = 0
		}
		to.Previous = was.Priority
		if was.Priority == priority {
			to.Previous = was.Previous
		}
	}
	if err := putClass(classes, to); err != nil {
		return err
	}
	if err := c.attach(g, own, classes); err != nil {
		return err
	}
	if err := c.treat(g, from, priority); err != nil {
		return err
	}
	to.Previous, to.State = 0, stateSettled
	return putClass(classes, to)
}

// remove takes g's class away.
func (c *Client) remove(g *group, own programs, above uint32) error {
	for _, p := range own {
		p.class.State = stateRemoved
		if err := putClass(p.classes, p.class); err != nil {
			return err
		}
	}
	if err := c.treat(g, own.priorities(), above); err != nil {
		return err
	}
	for _, p := range own {
		if err := p.detach(g); err != nil {
			return err
		}
	}
	return nil
}

// above returns the priority that sockets of g have without a class of g's own:
// that of the nearest group above with a class, else 0.
func (c *Client) above(g *group) (uint32, error) {
	for name := g.name; name != "/"; {
		name = path.Dir(name)
		class, err := c.class(name)
		if err != nil {
			return 0, err
		}
		if class != nil {
			return class.Priority, nil
		}
	}
	return 0, nil
}

// class returns the class in force of a group, nil if there is none.
func (c *Client) class(name string) (*class, error) {
	g, err := c.open(name)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	a, err := attachedTo(g)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	for _, p := range a.of(c.netns) {
		if p.class.State != stateRemoved {
			return &p.class, nil
		}
	}
	return nil, nil
}

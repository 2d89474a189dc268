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

// A Client works in the network namespace in which it was opened. Callers use it on threads of
// that namespace. It is not safe for concurrent use.
type Client struct {
	v2    string
	netns uint64 // cookie
}

// Open returns a client for the groups below v2, the mount point of the unified hierarchy. If
// the hierarchy is not mounted, v2 is "", and the client finds no group. Before Linux 5.14,
// which added SO_NETNS_COOKIE, the error is ENOPROTOOPT.
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

// open opens a group. If it does not exist, the error is ENOENT.
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

// Read returns the present class of o's group. It returns nil if the group does not exist or
// has no class of this network namespace.
//
// A class is incomplete if a writer was killed or another process detached one of the class's
// programs. Read returns it without a Priority. So it differs from nil and from every wanted
// class, and a plan or a rollback writes the class again.
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

// Write changes the class of a group from old to next; nil means absent. Errors: ENOENT if the
// group does not exist, EEXIST if it has a class and old is nil, EBUSY if it has a class of
// another network namespace, EPERM if a foreign program on it excludes others.
//
// Write first attaches the programs, and then sets the priority of existing sockets, so that it
// misses no socket. To remove a class, it makes the programs do nothing, resets the priority of
// sockets, and then detaches the programs. If Write is killed in between, the programs and the
// old priority in their map remain for the next Read and Write.
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

// set gives g a class. g may have a complete class, a part of one, or none.
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
			// The map has room for one old priority, so finish the earlier change first.
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

// remove removes g's class.
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

// above returns the priority that sockets of g get if g has no class: the priority of the
// nearest upper group that has a class, else 0.
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

// class returns the class of a group, or nil if the group has none that is in force.
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

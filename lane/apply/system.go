// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/devlink"
	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/kernel/irq"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/kernel/netprio"
	"github.com/niclane/niclane/internal/kernel/rtlink"
	"github.com/niclane/niclane/internal/kernel/shaper"
	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/poller"
)

// A System is a connection to the kernel in the network namespace of the thread that called
// NewKernel. It is not safe for concurrent use.
type System struct {
	clients map[string]client // by object kind
	missing map[string]error  // why a kind has no client
	tc      *tc.Client
	ethtool *ethtool.Client
	bpf     *bpf.Client
	finder  *observe.Finder
	groups  device.Cgroup // mount points of control group hierarchies
	closers []io.Closer
}

type client interface {
	Read(o device.Object) (device.Object, error)
	Write(old, next device.Object) error
}

// NewKernel connects to the kernel, and to the pollers whose sockets are in runDir. If the kernel
// does not have a netlink family, only objects that need that family cannot be read or written.
func NewKernel(runDir string) (*System, error) {
	s := &System{clients: map[string]client{}, missing: map[string]error{}}
	if err := s.open(runDir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *System) open(runDir string) error {
	find, err := observe.OpenFinder()
	if err != nil {
		return err
	}
	s.finder = find
	s.closers = append(s.closers, find)
	t, err := tc.Open()
	if err != nil {
		return err
	}
	s.tc = t
	s.bpf = bpf.New(t)
	s.closers = append(s.closers, s.bpf, t)
	s.serve(t, device.Qdisc{}, device.Class{}, device.Flower{})
	l, err := rtlink.Open()
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l)
	s.serve(l, device.GSOLimit{})
	s.serve(s.bpf, device.Filter{}, device.FilterEntry{}, device.FilterDefault{}, device.FilterLink{},
		device.FilterShare{}, device.Tunnels{}, device.XDP{}, device.CPUQueue{}, device.CPUThread{},
		device.CPULane{}, device.XDPEntry{})

	groups, err := cgroup.Find(nil)
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	s.groups = groups
	f, err := hostfs.Open(cgroup.Mounts(groups))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, f)
	s.serve(f, device.File{})
	if groups.V2 == "" {
		s.without(errors.New("no unified hierarchy (cgroup v2) is mounted here"), device.CgroupClass{})
	} else if c, err := sockclass.Open(groups.V2); err != nil {
		s.without(err, device.CgroupClass{})
	} else {
		s.serve(c, device.CgroupClass{})
	}

	dl := devlink.Open()
	s.closers = append(s.closers, dl)
	s.serve(dl, device.DriverParam{})
	sh := shaper.Open()
	s.closers = append(s.closers, sh)
	s.serve(sh, device.Shaper{})
	if mount := groups.V1["net_prio"]; mount == "" {
		s.without(errors.New("no net_prio hierarchy (cgroup v1) is mounted here"), device.CgroupPriority{})
	} else {
		c, err := netprio.Open(mount)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, c)
		s.serve(c, device.CgroupPriority{})
	}

	s.serve(poller.Client{RunDir: runDir}, device.Poller{})

	e, err := ethtool.Open()
	if errors.Is(err, fs.ErrNotExist) {
		s.without(err, device.Channels{}, device.Coalesce{}, device.Ring{}, device.Feature{}, device.PrivFlag{},
			device.NAPIConfig{},
			device.Thread{}, device.RSSTable{}, device.Rule{}, device.Affinity{})
		return nil
	}
	if err != nil {
		return err
	}
	s.ethtool = e
	s.closers = append(s.closers, e)
	s.serve(e, device.Channels{}, device.Coalesce{}, device.Ring{}, device.Feature{}, device.PrivFlag{})

	st, err := emucard.NewClient(e)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, st)
	s.serve(st, device.RSSTable{}, device.Rule{})

	n, err := netdev.Open(e)
	if errors.Is(err, fs.ErrNotExist) {
		s.serve(&irq.Client{Files: f, Links: e}, device.Affinity{})
		s.without(err, device.NAPIConfig{}, device.Thread{})
		return nil
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, n)
	s.serve(n, device.NAPIConfig{}, device.Thread{})
	s.serve(&irq.Client{Files: f, Links: e, Queues: n}, device.Affinity{})
	return nil
}

// Prepare begins to load the BPF programs that the steps need. It attaches none, so the kernel
// behaves as before.
func (s *System) Prepare(steps []plan.Step) {
	var objects []device.Object
	for _, step := range steps {
		if step.New != nil {
			objects = append(objects, step.New)
		}
	}
	s.bpf.Prepare(objects...)
}

// Anew drops cached kernel state. Within one apply, s reuses some values that it has just read. A
// caller that uses s for another apply calls Anew first, because other programs may have changed
// these values.
func (s *System) Anew() {
	s.bpf.Anew()
	if s.ethtool != nil {
		s.ethtool.Anew()
	}
}

func (s *System) serve(c client, objects ...device.Object) {
	for _, o := range objects {
		s.clients[o.Kind()] = c
	}
}

func (s *System) without(err error, objects ...device.Object) {
	for _, o := range objects {
		s.missing[o.Kind()] = err
	}
}

// Close closes all connections.
func (s *System) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (s *System) client(o device.Object) (client, error) {
	if c := s.clients[o.Kind()]; c != nil {
		return c, nil
	}
	if err := s.missing[o.Kind()]; err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: this version of niclane does not write objects of kind %q", o.Key(), o.Kind())
}

// Read implements Kernel.
func (s *System) Read(o device.Object) (device.Object, error) {
	c, err := s.client(o)
	if err != nil {
		return nil, err
	}
	return c.Read(o)
}

// ReadMany implements ManyReader.
func (s *System) ReadMany(objects []device.Object) ([]device.Object, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	c, err := s.client(objects[0])
	if err != nil {
		return nil, err
	}
	if m, ok := c.(ManyReader); ok {
		return m.ReadMany(objects)
	}
	out := make([]device.Object, len(objects))
	for i, o := range objects {
		if out[i], err = c.Read(o); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key(), err)
		}
	}
	return out, nil
}

func (s *System) write(old, next device.Object) error {
	o := next
	if o == nil {
		o = old
	}
	c, err := s.client(o)
	if err != nil {
		return err
	}
	return c.Write(old, next)
}

// Occupants implements Occupier.
func (s *System) Occupants(o device.Object) ([]string, error) {
	switch o := o.(type) {
	case device.Qdisc, device.Class:
		return s.tc.Occupants(o)
	case device.RSSTable:
		rules, err := s.leadingTo(o)
		var who []string
		for _, r := range rules {
			who = append(who, r.Key())
		}
		return who, err
	}
	return nil, nil
}

// leadingTo returns the rules that lead to an RSS context. While there are any, the kernel
// refuses to remove the context (ethtool_check_rss_ctx_busy, Linux 6.12).
func (s *System) leadingTo(table device.RSSTable) ([]device.Rule, error) {
	if table.Context == 0 {
		return nil, nil
	}
	all, err := s.ethtool.Rules(table.Dev)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return slices.DeleteFunc(all.Rules, func(r device.Rule) bool { return r.Context != table.Context }), err
}

// Evict implements Evictor.
func (s *System) Evict(o device.Object, who []string) (evicted []string, err error) {
	table, ok := o.(device.RSSTable)
	if !ok {
		return nil, nil
	}
	rules, err := s.leadingTo(table)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		if !slices.Contains(who, r.Key()) {
			continue
		}
		if err := s.ethtool.DeleteRule(r); err != nil {
			return evicted, err
		}
		evicted = append(evicted, r.Key())
	}
	return evicted, nil
}

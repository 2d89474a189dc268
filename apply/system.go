// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/bpf"
	"github.com/niclane/niclane/internal/cgroup"
	"github.com/niclane/niclane/internal/ethtool"
	"github.com/niclane/niclane/internal/hostfs"
	"github.com/niclane/niclane/internal/netdev"
	"github.com/niclane/niclane/internal/nlsock"
	"github.com/niclane/niclane/internal/steer"
	"github.com/niclane/niclane/internal/tc"
)

// A System is the running kernel, in the network namespace of the thread that
// called NewKernel. It is not safe for concurrent use.
type System struct {
	clients map[string]client // by object kind
	missing map[string]error  // why there is no client
	tc      *tc.Client
	closers []io.Closer
}

type client interface {
	Read(o device.Object) (device.Object, error)
	Write(old, new device.Object) error
}

// NewKernel connects to the kernel. A family that the kernel does not have is
// an error only for the objects that need it.
func NewKernel() (*System, error) {
	s := &System{clients: map[string]client{}, missing: map[string]error{}}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *System) open() error {
	t, err := tc.Open()
	if err != nil {
		return err
	}
	s.tc = t
	b := bpf.New(t)
	s.closers = append(s.closers, t, b)
	s.serve(t, device.Qdisc{}, device.Class{})
	s.serve(b, device.Filter{}, device.FilterEntry{})

	groups, err := cgroup.Find(nil)
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	f, err := hostfs.Open(cgroup.Mounts(groups))
	if err != nil {
		return err
	}
	s.closers = append(s.closers, f)
	s.serve(f, device.File{})

	e, err := ethtool.Open()
	if errors.Is(err, fs.ErrNotExist) {
		s.without(err, device.Channels{}, device.Coalesce{}, device.Ring{}, device.Feature{}, device.NAPIConfig{}, device.Thread{})
		return nil
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, e)
	s.serve(e, device.Channels{}, device.Coalesce{}, device.Ring{}, device.Feature{})

	st, err := steer.Open(e)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, st)
	s.serve(st, device.RSSTable{}, device.Rule{})

	n, err := openNetdev(e)
	if errors.Is(err, fs.ErrNotExist) {
		s.without(err, device.NAPIConfig{}, device.Thread{})
		return nil
	}
	if err != nil {
		return err
	}
	s.closers = append(s.closers, n)
	s.serve(n, device.NAPIConfig{}, device.Thread{})
	return nil
}

// openNetdev is netdev.Open with a socket that blocks.
func openNetdev(links netdev.Links) (*netdev.Client, error) {
	nl, err := nlsock.Dial(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	conn, err := netdev.New(genetlink.NewConn(nl))
	if err != nil {
		return nil, errors.Join(err, nl.Close())
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, errors.Join(fmt.Errorf("uname: %w", err), conn.Close())
	}
	return &netdev.Client{Conn: conn, Links: links, Release: unix.ByteSliceToString(u.Release[:])}, nil
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

// Close disconnects.
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

// Write implements Kernel.
func (s *System) Write(old, new device.Object) error {
	o := new
	if o == nil {
		o = old
	}
	c, err := s.client(o)
	if err != nil {
		return err
	}
	return c.Write(old, new)
}

// Occupants implements Occupier.
func (s *System) Occupants(o device.Object) ([]string, error) {
	switch o.(type) {
	case device.Qdisc, device.Class:
		return s.tc.Occupants(o)
	}
	return nil, nil
}

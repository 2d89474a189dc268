// SPDX-License-Identifier: Apache-2.0

// Package observe reads the state of a machine into the plain data of package device. It sees the
// machine from the network namespace of the calling thread. It changes nothing. Some capabilities
// of the kernel show only when they are tried: then it tries in a network namespace of its own,
// or writes the value that is already there. It keeps the results of slow probes, and only if the
// caller names a directory.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/kernel/irq"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
)

// Options say what to observe.
type Options struct {
	// Devices are the devices to observe. Observe also reads their masters, slaves and lower
	// devices. Empty means all devices of the namespace.
	Devices []string
	// Cgroups are the control groups to observe, as paths relative to the root of their hierarchy
	// ("/system.slice/memcached.service").
	Cgroups []string
	// NoProbes says to leave out capabilities. It is faster, for a machine whose capabilities are
	// known.
	NoProbes bool
	// RunDir is the run directory in which niclane's pollers have their sockets; "":
	// poller.DefaultRunDir.
	RunDir string
	// Remember is a directory that only this user can enter. Observe keeps the results of slow
	// probes there and uses them while they are valid. "": it always probes.
	Remember string
}

// An observer has the connections to the kernel during one observation.
type observer struct {
	state   *device.State
	fs      *hostfs.FS
	route   *netlink.Conn
	ethtool *ethtool.Client
	steer   *emucard.Client
	tc      *tc.Client
	bpf     *bpf.Client
	netdev  *netdev.Client // nil if the kernel has no such family
	noGenl  error          // why netdev has no queues and NAPIs
	irqs    map[int][]string
	// probedTC delivers the result of the probes that startTC has started.
	probedTC chan tcProbes
}

// Observe reads the state. If a device in opts does not exist, the error is ENODEV. It leaves out
// what the kernel does not have or does not show to this process. The capability's finding says
// why.
func Observe(ctx context.Context, opts Options) (*device.State, error) {
	o := &observer{state: &device.State{
		Schema: device.Schema, Files: map[string]device.File{}, Capabilities: device.Capabilities{},
	}}
	defer o.close()
	var err error
	if o.state.Kernel, err = kernel(); err != nil {
		return nil, err
	}
	if !opts.NoProbes {
		o.startTC(ctx, opts.Remember)
		o.state.IRQBalance = irqbalance("/proc")
	}
	if err := o.open(opts); err != nil {
		return nil, err
	}
	all, err := links(o.route)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(all, opts.Devices)
	if err != nil {
		return nil, err
	}
	if o.state.CPUs, err = cpus(o.fs, o.state.Cgroups.V2); err != nil {
		return nil, err
	}
	o.hostFiles(opts.Cgroups)
	if err := o.cgroupClasses(opts.Cgroups); err != nil {
		return nil, err
	}
	if b, err := os.ReadFile("/proc/interrupts"); err == nil {
		o.irqs = irq.Parse(string(b))
	}
	for _, l := range chosen {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, r, err := o.device(l, all)
		if errors.Is(err, unix.ENODEV) && !slices.Contains(opts.Devices, l.name) {
			continue // a device that the caller did not name has disappeared meanwhile, as containers' devices do
		}
		if err != nil {
			return nil, fmt.Errorf("observe %s: %w", l.name, err)
		}
		if !opts.NoProbes {
			o.probeDevice(d, r)
			if err := doubt(l.name+": ", d.Capabilities); err != nil {
				return nil, err
			}
		}
		o.state.Devices = append(o.state.Devices, *d)
	}
	if err := o.netPrio(opts); err != nil {
		return nil, err
	}
	if err := o.pollers(opts.RunDir); err != nil {
		return nil, err
	}
	if err := o.shapers(opts); err != nil {
		return nil, err
	}
	if err := o.params(opts); err != nil {
		return nil, err
	}
	if !opts.NoProbes {
		if err := o.probeKernel(ctx); err != nil {
			return nil, err
		}
		if err := doubt("", o.state.Capabilities); err != nil {
			return nil, err
		}
	}
	return o.state, nil
}

// cgroupClasses reads the classes that niclane gives to sockets of control groups.
func (o *observer) cgroupClasses(groups []string) error {
	if o.state.Cgroups.V2 == "" || len(groups) == 0 {
		return nil
	}
	c, err := sockclass.Open(o.state.Cgroups.V2)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil // before Linux 5.14
	}
	if err != nil {
		return err
	}
	for _, g := range groups {
		v, err := c.Read(device.CgroupClass{Cgroup: g})
		if errors.Is(err, os.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		if v != nil {
			o.state.Cgroups.Classes = append(o.state.Cgroups.Classes, v.(device.CgroupClass))
		}
	}
	return nil
}

func (o *observer) open(opts Options) (err error) {
	if o.state.Cgroups, err = cgroup.Find(opts.Cgroups); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	if o.fs, err = hostfs.Open(cgroup.Mounts(o.state.Cgroups)); err != nil {
		return err
	}
	if o.route, err = nlsock.Dial(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if o.ethtool, err = ethtool.Open(); err != nil {
		return err
	}
	if o.steer, err = emucard.NewClient(o.ethtool); err != nil {
		return err
	}
	if o.tc, err = tc.Open(); err != nil {
		return err
	}
	o.bpf = bpf.New(o.tc)
	if o.netdev, err = netdev.Open(o.ethtool); errors.Is(err, os.ErrNotExist) {
		o.noGenl, err = fmt.Errorf("no netlink family %s (Linux 6.3; queues and NAPIs 6.8)", netdev.Family), nil
	}
	return err
}

func (o *observer) close() {
	if o.netdev != nil {
		o.netdev.Close()
	}
	if o.tc != nil {
		o.bpf.Close()
		o.tc.Close()
	}
	if o.steer != nil {
		o.steer.Close()
	}
	if o.ethtool != nil {
		o.ethtool.Close()
	}
	if o.route != nil {
		o.route.Close()
	}
	if o.fs != nil {
		o.fs.Close()
	}
}

func kernel() (device.Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return device.Kernel{}, fmt.Errorf("uname: %w", err)
	}
	return device.Kernel{
		Release: unix.ByteSliceToString(u.Release[:]),
		Version: unix.ByteSliceToString(u.Version[:]),
		Arch:    unix.ByteSliceToString(u.Machine[:]),
	}, nil
}

// choose returns the named links and all links that they depend on: masters, the other slaves of
// these masters, slaves, and lower devices. Without names, it returns all links. The result is
// sorted by name.
func choose(all []iface, names []string) ([]iface, error) {
	byIndex := map[int]iface{}
	for _, l := range all {
		byIndex[l.index] = l
	}
	take := map[int]bool{}
	var add func(l iface)
	add = func(l iface) {
		if take[l.index] {
			return
		}
		take[l.index] = true
		if m, ok := byIndex[l.master]; ok && l.master != 0 {
			add(m)
		}
		if low, ok := byIndex[l.lower]; ok && l.isUpper() {
			add(low)
		}
		for _, s := range all {
			if s.master == l.index && l.index != 0 {
				add(s)
			}
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(l iface) bool { return l.name == name || slices.Contains(l.altNames, name) })
		if i < 0 {
			return nil, fmt.Errorf("%s: no such network device in this network namespace: %w", name, unix.ENODEV)
		}
		add(all[i])
	}
	var out []iface
	for _, l := range all {
		if len(names) == 0 || take[l.index] {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b iface) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// isUpper reports whether the link is on top of another link in this namespace, as a VLAN is. A
// veth is not: its IFLA_LINK is its peer.
func (l iface) isUpper() bool {
	return l.lower != 0 && l.lower != l.index && !l.lowerElsewhere && l.kind != "veth"
}

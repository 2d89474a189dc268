// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/irq"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/lane/device"
)

// A reading has the errors of reading a device's RSS tables and rules; nil if a part was read.
type reading struct {
	rss, rules error
}

// device reads everything about one link except its capabilities. If the driver does not have a
// setting, it is left out.
func (o *observer) device(l iface, all []iface) (_ *device.Device, _ reading, err error) {
	look := o.bpf.Look(l.name)
	// Contents ends the use of the client, so it must be called on every return.
	defer func() { _, _ = look.Contents() }()
	d := &device.Device{
		Name: l.name, Index: l.index, AltNames: l.altNames, Type: l.kind,
		MAC: l.mac.String(), PermMAC: l.permMAC.String(), Parent: l.parent, MTU: l.mtu, LinkType: l.linkType,
		TxQueueLen: l.qlen, GSO: l.gso,
		Up: l.flags&unix.IFF_UP != 0, Carrier: l.carrier, Node: -1, VLAN: l.vlan, BondMode: l.bondMode,
		Capabilities: device.Capabilities{},
	}
	for _, other := range all {
		if other.index == l.master && l.master != 0 {
			d.Master = other.name
			d.Idle = other.kind == "bond" && (l.idle || !l.carrier)
		}
		if other.index == l.lower && l.isUpper() {
			d.Lower = other.name
		}
	}
	if info, err := o.ethtool.DriverInfo(d.Name); err == nil {
		d.Driver, d.Version, d.Firmware, d.Bus = info.Driver, info.Version, info.Firmware, info.Bus
	}
	var r reading
	if err = o.ownSysfs(l); err != nil {
		return nil, r, err
	}
	if d.RxQueues, d.TxQueues, err = o.queueCounts(d.Name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, r, unix.ENODEV // it disappeared meanwhile
		}
		return nil, r, err
	}
	if d.Node, err = readInt(o.fs, "/sys/class/net/"+d.Name+"/device/numa_node", -1); err != nil {
		d.Node = -1
	}
	if err := o.settings(d); err != nil {
		return nil, r, err
	}
	d.IRQs = irq.Of(o.irqs, d.Driver, d.Name, d.Bus, l.parent)
	if err := o.napis(d); err != nil {
		return nil, r, err
	}
	if r, err = o.steering(d); err != nil {
		return nil, r, err
	}
	if err := o.traffic(d); err != nil {
		return nil, r, err
	}
	o.programs(d, l)
	o.deviceFiles(d)
	return d, r, own(d, look)
}

var errForeignSysfs = errors.New("the sysfs at /sys shows another network namespace, and mounting one for this " +
	"needs CAP_SYS_ADMIN")

// ownSysfs checks that sysfs shows this link. It could show a link of another namespace with the
// same name.
func (o *observer) ownSysfs(l iface) error {
	if o.fs.Private() {
		return nil
	}
	index, err := readInt(o.fs, "/sys/class/net/"+l.name+"/ifindex", -1)
	if err != nil {
		return err
	}
	mac, err := o.fs.ReadFile("/sys/class/net/" + l.name + "/address")
	if err != nil || index != l.index || strings.TrimSpace(string(mac)) != l.mac.String() {
		return errForeignSysfs
	}
	return nil
}

// settings reads ethtool's settings. If the driver does not have a setting (EOPNOTSUPP), it is
// left out.
func (o *observer) settings(d *device.Device) error {
	if cur, most, err := o.ethtool.Channels(d.Name); err == nil {
		d.Channels, d.MaxChannels = &cur, &most
	} else if !tolerable(err) {
		return err
	}
	if cur, most, err := o.ethtool.Ring(d.Name); err == nil {
		d.Ring, d.MaxRing = &cur, &most
	} else if !tolerable(err) {
		return err
	}
	if c, has, err := o.ethtool.Coalesce(d.Name); err == nil {
		d.Coalesce, d.CoalesceHas = &c, has
	} else if !tolerable(err) {
		return err
	}
	for q := range max(d.RxQueues, d.TxQueues) {
		c, err := o.ethtool.QueueCoalesce(d.Name, q)
		if err != nil {
			break
		}
		d.QueueCoal = append(d.QueueCoal, c)
	}
	f, err := o.ethtool.Features(d.Name)
	if err != nil && !tolerable(err) {
		return err
	}
	d.Features = f
	if flags, err := o.ethtool.PrivateFlags(d.Name); err == nil && len(flags) > 0 {
		d.PrivFlags = flags
	}
	if speed, err := o.ethtool.Speed(d.Name); err == nil {
		d.Speed = speed
	}
	return nil
}

// steering reads RSS tables and rules. If the device is the lab's emulated card, they are those
// of the emulation.
func (o *observer) steering(d *device.Device) (reading, error) {
	s, err := o.steer.Steering(d.Name)
	if err != nil {
		return reading{}, err
	}
	d.RSS, d.Rules, d.OtherRules, d.RuleCapacity = s.Tables, s.Rules, s.Other, s.Capacity
	if d.Emulated = s.Emulated; s.Emulated {
		d.Speed, d.MaxContexts = s.LinkRate, s.MaxContexts
	}
	return reading{s.TablesErr, s.RulesErr}, nil
}

// traffic reads qdiscs, classes and filters.
func (o *observer) traffic(d *device.Device) (err error) {
	if d.Qdiscs, err = o.tc.Qdiscs(d.Name); err != nil {
		return err
	}
	slices.SortStableFunc(d.Qdiscs, func(a, b device.QdiscState) int {
		return cmp.Or(cmp.Compare(a.Handle, b.Handle), naturalCompare(a.Parent, b.Parent))
	})
	if d.Classes, err = o.tc.Classes(d.Name); err != nil {
		return err
	}
	slices.SortStableFunc(d.Classes, func(a, b device.Class) int { return naturalCompare(a.ID, b.ID) })
	if d.Filters, err = o.tc.Filters(d.Name); err != nil {
		return err
	}
	d.Flowers, err = o.tc.Flowers(d.Name)
	return err
}

// own adds the contents of the maps of niclane's programs. Without CAP_BPF it adds nothing.
func own(d *device.Device, look *bpf.Look) error {
	c, err := look.Contents()
	if errors.Is(err, fs.ErrPermission) {
		return nil // which programs are niclane's cannot be known
	}
	if err != nil {
		return err
	}
	d.Entries, d.Defaults, d.XDPEntries = c.Entries, c.Defaults, c.XDPEntries
	d.SharedLinks, d.Shares = c.Links, c.Shares
	d.Tunnels, d.CPUQueues, d.CPUThreads, d.CPULanes = c.Tunnels, c.CPUQueues, c.CPUThreads, c.CPULanes
	return nil
}

// naturalCompare compares handles so that "1:2" is before "1:10".
func naturalCompare(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// tolerable reports whether a setting may be left out because of this error. Otherwise the
// observation ends with the error: the device has disappeared.
func tolerable(err error) bool {
	return !errors.Is(err, unix.ENODEV)
}

// napis reads queues and NAPIs. If the kernel does not report queues, it makes them from the
// numbers of queues.
func (o *observer) napis(d *device.Device) error {
	if o.netdev != nil {
		m, err := o.netdev.Map(d.Name)
		switch {
		case errors.Is(err, unix.EOPNOTSUPP): // Linux 6.3 to 6.7 have the family, but not these commands
			o.noGenl = fmt.Errorf("netlink family %s has no queues and NAPIs (Linux 6.8)", netdev.Family)
		case err != nil:
			return err
		default:
			d.Queues = m.Queues
			if err := o.addNAPIs(d, m); err != nil {
				return err
			}
		}
	}
	if len(d.Queues) == 0 { // no netdev-genl, or the device is down
		for q := range d.RxQueues {
			d.Queues = append(d.Queues, device.Queue{ID: q, Type: "rx"})
		}
		for q := range d.TxQueues {
			d.Queues = append(d.Queues, device.Queue{ID: q, Type: "tx"})
		}
	}
	return nil
}

func (o *observer) addNAPIs(d *device.Device, m netdev.Map) error {
	for _, n := range m.NAPIs {
		queue := m.RxQueue(n.ID)
		v := device.NAPI{ID: n.ID, IRQ: n.IRQ, PID: n.PID, Config: n.Config(d.Name, queue)}
		t, err := netdev.ReadThread(n.PID)
		if err != nil {
			v.PID = 0 // a PID of another PID namespace, which has no meaning here
		}
		if t != nil {
			t.Dev, t.Queue = d.Name, queue
			v.Thread = t
		}
		d.NAPIs = append(d.NAPIs, v)
		if n.IRQ != 0 {
			d.IRQs = irq.Add(d.IRQs, n.IRQ, queue, strings.Join(o.irqs[n.IRQ], ", "))
		}
	}
	slices.SortFunc(d.IRQs, func(a, b device.IRQ) int { return cmp.Compare(a.Number, b.Number) })
	return nil
}

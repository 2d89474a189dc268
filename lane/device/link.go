// SPDX-License-Identifier: Apache-2.0

package device

import (
	"reflect"
	"slices"
	"strings"
)

// A Link identifies a network device as long as it exists, also after a rename.
type Link struct {
	Name string `json:"name"`
	// Index is the interface number in its network namespace. A rename does not change it. A move to
	// another namespace changes it only if the number is in use there (net/core/dev.c:
	// __dev_change_net_namespace).
	Index int `json:"index"`
	// Type is the rtnl link kind ("veth"), "" for hardware.
	Type string `json:"type,omitempty"`
	// MAC is the present address. PermMAC is the hardware's original address
	// (IFLA_PERM_ADDRESS, Linux 5.6), "" if there is none.
	MAC     string `json:"mac,omitempty"`
	PermMAC string `json:"permMAC,omitempty"`
	// Parent is the hardware device behind the interface ("0000:3b:00.0"; IFLA_PARENT_DEV_NAME,
	// Linux 5.14), "" for none.
	Parent string `json:"parent,omitempty"`
}

// Link returns the identity of d.
func (d *Device) Link() Link {
	return Link{Name: d.Name, Index: d.Index, Type: d.Type, MAC: d.MAC, PermMAC: d.PermMAC, Parent: d.Parent}
}

// Same reports whether l and was are the same device. Both were read in the same network
// namespace, l later. The index is not enough, because a new device can get an old index (ip link
// add ... index N).
func (l Link) Same(was Link) bool {
	return l.Index == was.Index && l.Type == was.Type && l.Parent == was.Parent && l.PermMAC == was.PermMAC
}

// SameElsewhere reports whether l and was are the same device, although its index or its network
// namespace has changed. The hardware's original address decides. Without one, the present
// address and the name or index must be equal: the present address alone is not unique, because
// all slaves of a bond have the same one.
func (l Link) SameElsewhere(was Link) bool {
	if l.Type != was.Type || l.PermMAC != was.PermMAC || l.Parent != was.Parent {
		return false
	}
	return was.PermMAC != "" || was.MAC != "" && l.MAC == was.MAC && (l.Name == was.Name || l.Index == was.Index)
}

// perDevice are the directories that have one entry for each device, with the device's name.
var perDevice = []string{"/sys/class/net/", "/proc/sys/net/ipv4/conf/", "/proc/sys/net/ipv6/conf/"}

// cut divides a path like /sys/class/net/eth0/mtu into directory, device and rest. ok is false if
// the path has no device.
func cut(path string) (dir, dev, rest string, ok bool) {
	for _, dir := range perDevice {
		if after, found := strings.CutPrefix(path, dir); found {
			dev, _, _ := strings.Cut(after, "/")
			return dir, dev, after[len(dev):], true
		}
	}
	return "", "", "", false
}

// DeviceOf returns the name of the network device that o belongs to, "" for none.
func DeviceOf(o Object) string {
	switch o := o.(type) {
	case nil:
		return ""
	case File:
		_, dev, _, _ := cut(o.Path)
		return dev
	}
	v := reflect.ValueOf(o)
	if f := v.FieldByName("Dev"); f.IsValid() {
		return f.String()
	}
	if f := v.FieldByName("Filter"); f.IsValid() { // filter/DEV/PARENT/PREF/HANDLE
		if part := strings.Split(f.String(), "/"); len(part) > 1 {
			return part[1]
		}
	}
	return ""
}

// Renamed returns a copy of o with the device name to.
func Renamed(o Object, to string) Object {
	from := DeviceOf(o)
	if from == "" || from == to {
		return o
	}
	if f, ok := o.(File); ok {
		dir, _, rest, _ := cut(f.Path)
		f.Path = dir + to + rest
		return f
	}
	v := reflect.New(reflect.TypeOf(o)).Elem()
	v.Set(reflect.ValueOf(o))
	if f := v.FieldByName("Dev"); f.IsValid() {
		f.SetString(to)
	} else {
		f := v.FieldByName("Filter")
		part := strings.Split(f.String(), "/")
		part[1] = to
		f.SetString(strings.Join(part, "/"))
	}
	return v.Interface().(Object)
}

// Resolve returns the name of the device with the given name or alternative name. If there
// is none, it returns name.
func (s *State) Resolve(name string) string {
	if s.Device(name) != nil {
		return name
	}
	for i := range s.Devices {
		if slices.Contains(s.Devices[i].AltNames, name) {
			return s.Devices[i].Name
		}
	}
	return name
}

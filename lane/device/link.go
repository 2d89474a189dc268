// SPDX-License-Identifier: Apache-2.0

package device

import (
	"reflect"
	"slices"
	"strings"
)

// A Link identifies a network device for its whole life, also after a rename.
type Link struct {
	Name string `json:"name"`
	// Index is the interface number in its network namespace. It stays after a
	// rename, and after a move to another namespace if the number is free there
	// (net/core/dev.c: __dev_change_net_namespace).
	Index int `json:"index"`
	// Type is the rtnl link kind ("veth"), "" for hardware.
	Type string `json:"type,omitempty"`
	// MAC is the present address. PermMAC is the hardware's original address
	// (IFLA_PERM_ADDRESS, Linux 5.6), "" if there is none.
	MAC     string `json:"mac,omitempty"`
	PermMAC string `json:"permMAC,omitempty"`
	// Parent is the hardware device that it belongs to ("0000:3b:00.0"), "" for
	// none (IFLA_PARENT_DEV_NAME, Linux 5.14).
	Parent string `json:"parent,omitempty"`
}

// Link returns the identity of d.
func (d *Device) Link() Link {
	return Link{Name: d.Name, Index: d.Index, Type: d.Type, MAC: d.MAC, PermMAC: d.PermMAC, Parent: d.Parent}
}

// Same reports whether l, seen later in the same network namespace, is the same device as
// was. The index is not enough, because it can be reused (ip link add ... index N).
func (l Link) Same(was Link) bool {
	return l.Index == was.Index && l.Type == was.Type && l.Parent == was.Parent && l.PermMAC == was.PermMAC
}

// SameElsewhere reports whether l, with another index or in another network namespace, is
// the same device as was. The hardware's original address decides. A present address is not
// unique, because all slaves of a bond have the same. So without an original address, the
// name or the index must also be the same.
func (l Link) SameElsewhere(was Link) bool {
	if l.Type != was.Type || l.PermMAC != was.PermMAC || l.Parent != was.Parent {
		return false
	}
	return was.PermMAC != "" || was.MAC != "" && l.MAC == was.MAC && (l.Name == was.Name || l.Index == was.Index)
}

// perDevice are the directories with an entry per device name.
var perDevice = []string{"/sys/class/net/", "/proc/sys/net/ipv4/conf/", "/proc/sys/net/ipv6/conf/"}

// cut divides a file's path at the name of its device. ok is false if it has none.
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

// Renamed returns o with the name to for its device.
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

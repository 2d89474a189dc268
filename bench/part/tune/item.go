// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// An item is a setting and its value: a file, a service of systemd or an object of a card.
type item struct {
	File  string `json:"file,omitempty"`
	Unit  string `json:"unit,omitempty"`
	Value string `json:"value,omitempty"` // the content of the file; active or inactive
	// object is device.Channels, device.Ring, device.Coalesce or device.Affinity.
	object device.Object
}

// Values of a service.
const (
	active   = "active"
	inactive = "inactive"
)

// plain is an item without its methods of package json.
type plain item

// stored is the form of an item in a record.
type stored struct {
	plain
	Object json.RawMessage `json:"object,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (i item) MarshalJSON() ([]byte, error) {
	s := stored{plain: plain(i)}
	if i.object != nil {
		b, err := device.MarshalObject(i.object)
		if err != nil {
			return nil, err
		}
		s.Object = b
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *item) UnmarshalJSON(b []byte) (err error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*i = item(s.plain)
	if s.Object != nil {
		i.object, err = device.UnmarshalObject(s.Object)
	}
	return err
}

// String returns the name of the setting.
func (i item) String() string {
	switch {
	case i.object != nil:
		return i.object.Key()
	case i.Unit != "":
		return "service " + i.Unit
	}
	return i.File
}

// what returns the name of the setting for people. The interrupts of all queues are one.
func (i item) what() string {
	switch o := i.object.(type) {
	case device.Affinity:
		return "interrupts of " + o.Dev
	case device.Coalesce:
		return "moderation of " + o.Dev
	case device.Ring:
		return "rings of " + o.Dev
	}
	if name, ok := strings.CutPrefix(i.File, "/proc/sys/"); ok {
		return strings.ReplaceAll(name, "/", ".")
	}
	return i.String()
}

// value returns the value in words.
func (i item) value() string {
	if i.object != nil {
		return i.object.Brief()
	}
	return i.Value
}

// same reports whether two items of one setting have the same value.
func (i item) same(o item) bool {
	a, ok1 := i.object.(device.Affinity)
	b, ok2 := o.object.(device.Affinity)
	if ok1 && ok2 {
		if len(a.CPUs) == 1 { // a setting of Config has one list for all interrupts of the queue
			return !slices.ContainsFunc(b.CPUs, func(cpus string) bool { return cpus != a.CPUs[0] })
		}
		return slices.Equal(a.CPUs, b.CPUs)
	}
	if i.object != nil {
		return i.object == o.object
	}
	return i.normal() == o.normal()
}

// normal returns the value of a file in a form that can be compared. 00,00000001 and 1 are the
// same mask. The amount of white space between the numbers of a sysctl does not matter.
func (i item) normal() string {
	s := strings.Join(strings.Fields(i.Value), " ")
	if strings.HasPrefix(filepath.Base(i.File), "xps_") {
		return strings.TrimLeft(strings.ReplaceAll(s, ",", ""), "0")
	}
	return s
}

// device returns the network device of the setting; "": it is none of a device.
func (i item) device() string {
	if rest, ok := strings.CutPrefix(i.File, "/sys/class/net/"); ok {
		dev, _, _ := strings.Cut(rest, "/")
		return dev
	}
	switch o := i.object.(type) {
	case device.Channels:
		return o.Dev
	case device.Ring:
		return o.Dev
	case device.Coalesce:
		return o.Dev
	case device.Affinity:
		return o.Dev
	}
	return ""
}

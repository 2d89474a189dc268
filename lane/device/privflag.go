// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"maps"
)

// A PrivFlag is one of the driver's private flags (ethtool --show-priv-flags).
type PrivFlag struct {
	Dev  string `json:"dev"`
	Name string `json:"name"`
	On   bool   `json:"on"`
}

// Kind implements Object.
func (PrivFlag) Kind() string { return "priv-flag" }

// Key implements Object.
func (f PrivFlag) Key() string { return "priv-flag/" + f.Dev + "/" + f.Name }

// Brief implements Object.
func (f PrivFlag) Brief() string { return onOff(f.On) }

func (f PrivFlag) commands(_ Change) []string {
	return one(fmt.Sprintf("ethtool --set-priv-flags %s %s %s", f.Dev, f.Name, onOff(f.On)))
}

func (d *Device) putPrivFlag(f PrivFlag, next Object) {
	flags := maps.Clone(d.PrivFlags)
	if now, ok := next.(PrivFlag); ok {
		flags[f.Name] = now.On
	} else {
		delete(flags, f.Name)
	}
	d.PrivFlags = flags
}

func (d *Device) privFlags(yield func(Object)) {
	for name, on := range d.PrivFlags {
		yield(PrivFlag{Dev: d.Name, Name: name, On: on})
	}
}

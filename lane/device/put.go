// SPDX-License-Identifier: Apache-2.0

package device

import "slices"

// Put changes s as if the kernel now had the object with the value next instead
// of old (nil: absent), so that "what would planning see afterwards" can be
// asked without a kernel. It checks nothing; objects of devices that s does
// not have are dropped.
func (s *State) Put(old, next Object) {
	o := next
	if o == nil {
		o = old
	}
	kinds[o.Kind()].put(s, o, next)
}

// Clone returns a deep enough copy of s: changing the copy by Put leaves s as
// it is.
func (s *State) Clone() *State {
	c := *s
	c.Files = make(map[string]File, len(s.Files))
	for k, v := range s.Files {
		c.Files[k] = v
	}
	c.Devices = slices.Clone(s.Devices)
	for i := range c.Devices {
		d := &c.Devices[i]
		d.NAPIs = slices.Clone(d.NAPIs)
		features := make(map[string]Setting, len(d.Features))
		for k, v := range d.Features {
			features[k] = v
		}
		d.Features = features
	}
	return &c
}

// SPDX-License-Identifier: Apache-2.0

package device

import "slices"

// Put changes s as if an object's value in the kernel had changed from old to next; nil: absent.
// It computes a state after a change without a kernel. It checks nothing, and ignores objects on
// devices that s does not have.
func (s *State) Put(old, next Object) {
	o := next
	if o == nil {
		o = old
	}
	kinds[o.Kind()].put(s, o, next)
}

// Clone returns a copy of s. Changing the copy by Put does not change s.
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

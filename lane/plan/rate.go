// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/bits"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// rate is a lane's on this device: of a bond's rate the part that the device's
// link is of those that share it.
func (f *fit) rate(r intent.Rate) uint64 {
	rate := r.Of(f.link)
	if r.Permille > 0 || f.links == 0 {
		return rate
	}
	high, low := bits.Mul64(rate, f.link)
	part, _ := bits.Div64(high%f.links, low, f.links)
	return part
}

func (f *fit) guarantee(l *deviceLane) uint64 { return f.rate(l.Bandwidth.Guarantee) }

// ceiling is never more than the link of a bond's slave: the bond's can be, as
// soon as others have left.
func (f *fit) ceiling(l *deviceLane) uint64 {
	rate := f.rate(l.Bandwidth.Ceiling)
	if f.in.Group.Bond != "" {
		return min(rate, f.link)
	}
	return rate
}

// mostSlaves is how many slaves of a bond are looked for in the rates that
// traffic classes have.
const mostSlaves = 16

// keptRates returns the traffic classes that the card has, if they differ from q
// in nothing but how many slaves the bond had when they were made: a card cannot
// change them without taking them away. Otherwise it returns q.
func (f *fit) keptRates(q device.Qdisc, lanes []*deviceLane) device.Qdisc {
	now, ok := f.present[q.Key()].(device.Qdisc)
	if !ok || f.links == 0 || device.Equal(now, q) {
		return q
	}
	as := *f
	for n := range uint64(mostSlaves) {
		was := q
		as.links, as.errs = (n+1)*f.link, nil
		if as.ofCard(&was, lanes); device.Equal(now, was) {
			f.notef("the card's traffic classes keep the rates of a bond of %d: niclane rollback, and apply again, "+
				"for those of as many as there are", n+1)
			return was
		}
	}
	return q
}

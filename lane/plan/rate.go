// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/bits"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// rate returns, in bit/s, the part of a lane's rate that this device has. The slaves of a bond
// share rates in bit/s, in proportion to their links.
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

// ceiling returns the lane's ceiling on this device in bit/s, 0 for none. A bond's slave never
// gets more than its link, although the bond's ceiling can be higher after other slaves have
// left.
func (f *fit) ceiling(l *deviceLane) uint64 {
	rate := f.rate(l.Bandwidth.Ceiling)
	if f.in.Group.Bond != "" {
		return min(rate, f.link)
	}
	return rate
}

// mostSlaves is the largest number of slaves that keptRates tries.
const mostSlaves = 16

// keptRates returns the card's present traffic classes if only their rates differ from q, and
// only because the bond had another number of slaves. A card cannot change the rates without
// removing the classes. In all other cases, it returns q.
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
			f.notef("the card's traffic classes keep the rates for a bond of %d: niclane rollback and apply again "+
				"set those for the present slaves", n+1)
			return was
		}
	}
	return q
}

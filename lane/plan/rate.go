// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/bits"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// rate returns a lane's rate on this device in bit/s. A bond's rate is divided
// among the slaves that share it, in proportion to their links.
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

// ceiling is at most the link of a bond's slave. The bond's ceiling can be
// higher after other slaves have left.
func (f *fit) ceiling(l *deviceLane) uint64 {
	rate := f.rate(l.Bandwidth.Ceiling)
	if f.in.Group.Bond != "" {
		return min(rate, f.link)
	}
	return rate
}

// mostSlaves is the largest bond whose rates keptRates looks for in the traffic
// classes.
const mostSlaves = 16

// keptRates returns the card's present traffic classes if they differ from q only because the
// bond had another number of slaves when they were made. A card cannot change the rates
// without removing the classes. Otherwise it returns q.
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

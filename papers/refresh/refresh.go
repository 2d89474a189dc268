// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"errors"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/power"
)

// A Server is one kind of server doing one kind of work.
type Server struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// Rate of one server, Gbit/s, and RatePerWatt, Gbit/s per W, more than 0.
	Rate        power.Interval `json:"rateGbitPerSecond"`
	RatePerWatt power.Interval `json:"gbitPerSecondPerWatt"`
	// Units of a rack that it takes, 0 if not known.
	Units int `json:"rackUnits,omitempty"`
}

// Power of one server, W.
func (s Server) Power() power.Interval { return over(s.Rate, s.RatePerWatt) }

// A Rule says what a rack is full of.
type Rule string

// Rules.
const (
	// ByPower fills racks to the same power, of old servers and of new.
	ByPower Rule = "power"
	// ByUnits fills racks to the same number of rack units.
	ByUnits Rule = "units"
)

// Rules are all of them.
var Rules = []Rule{ByPower, ByUnits}

// Assumptions are what nobody has measured.
type Assumptions struct {
	Rule Rule `json:"rule"`
	// Racks of old servers, at least 1.
	Racks int `json:"racks"`
	// RackPower is the power of a full rack's servers, W; 0: not known, and
	// then only ratios come out of ByPower.
	RackPower float64 `json:"rackPowerW,omitempty"`
	// RackUnits of a rack that servers may take.
	RackUnits int `json:"rackUnits"`
	// PUE is the power of the site over that of its servers, at least 1.
	PUE float64 `json:"pue"`
	// Price of 1 kWh, in a currency of one's own; 0: not given.
	Price float64 `json:"pricePerKWh,omitempty"`
}

// A Result is what follows. What cannot be known is nil.
type Result struct {
	Old         Server      `json:"old"`
	New         Server      `json:"new"`
	Assumptions Assumptions `json:"assumptions"`
	// Formula is the one for Racks.
	Formula string `json:"formula"`
	// Racks of new servers that do what the old ones did, and Whole is their
	// number when the last one counts in full.
	Racks power.Interval `json:"racks"`
	Whole int            `json:"wholeRacks"`
	// Rate of all, Gbit/s, Servers before and after, and Power of all, W,
	// with the site's share (PUE).
	Rate     *power.Interval    `json:"rateGbitPerSecond,omitempty"`
	Servers  *[2]power.Interval `json:"servers,omitempty"`
	Power    *[2]power.Interval `json:"powerW,omitempty"`
	Saved    *power.Interval    `json:"savedW,omitempty"`
	Energy   *power.Interval    `json:"savedKWhPerYear,omitempty"`
	Cost     *power.Interval    `json:"savedPerYear,omitempty"`
	Megawatt float64            `json:"rackPowerForMegawattW,omitempty"`
}

const hoursPerYear = 365 * 24

// Replace says what new servers in place of old ones come to. The two rates have
// to be of the same work, which only the caller knows.
func Replace(old, next Server, a Assumptions) (*Result, error) {
	if err := a.check(old, next); err != nil {
		return nil, err
	}
	r := &Result{Old: old, New: next, Assumptions: a}
	racks := exactly(float64(a.Racks))
	switch a.Rule {
	case ByPower:
		r.Formula = "racks x old Gbit/s per W / new Gbit/s per W"
		r.Racks = over(times(racks, old.RatePerWatt), next.RatePerWatt)
		// What full racks fewer by these save, where each has the same power.
		if fewer := float64(a.Racks) - math.Ceil(r.Racks.Value); fewer > 0 {
			r.Megawatt = 1e6 / fewer / a.PUE
		}
		if a.RackPower > 0 {
			rate := times(times(racks, exactly(a.RackPower)), old.RatePerWatt)
			r.Rate = &rate
			r.power(exactly(float64(a.Racks)*a.RackPower), times(r.Racks, exactly(a.RackPower)))
		}
	case ByUnits:
		r.Formula = "racks x servers per rack x old Gbit/s / new servers per rack / new Gbit/s"
		perOld, perNew := float64(a.RackUnits/old.Units), float64(a.RackUnits/next.Units)
		rate := times(times(racks, exactly(perOld)), old.Rate)
		r.Rate = &rate
		r.Racks = over(over(rate, next.Rate), exactly(perNew))
		r.power(over(rate, old.RatePerWatt), over(rate, next.RatePerWatt))
	}
	r.Whole = int(math.Ceil(r.Racks.Value))
	if r.Rate != nil {
		r.Servers = &[2]power.Interval{over(*r.Rate, old.Rate), over(*r.Rate, next.Rate)}
	}
	return r, nil
}

// power sets what follows from the servers' power before and after, W.
func (r *Result) power(before, after power.Interval) {
	pue := exactly(r.Assumptions.PUE)
	before, after = times(before, pue), times(after, pue)
	saved := power.Interval{Value: before.Value - after.Value, Low: before.Low - after.High,
		High: before.High - after.Low}
	energy := times(saved, exactly(hoursPerYear/1000.0))
	r.Power, r.Saved, r.Energy = &[2]power.Interval{before, after}, &saved, &energy
	if p := r.Assumptions.Price; p > 0 {
		cost := times(energy, exactly(p))
		r.Cost = &cost
	}
}

func (a Assumptions) check(old, next Server) error {
	for _, s := range []Server{old, next} {
		if !(s.Rate.Low > 0 && s.RatePerWatt.Low > 0) {
			return fmt.Errorf("%s: a throughput of %v Gbit/s and %v Gbit/s per W: want more than 0", s.Name,
				s.Rate.Value, s.RatePerWatt.Value)
		}
	}
	switch {
	case a.Racks < 1:
		return fmt.Errorf("%d racks: want at least 1", a.Racks)
	case a.RackPower < 0 || a.Price < 0:
		return errors.New("a power and a price are not negative")
	case !(a.PUE >= 1):
		return fmt.Errorf("PUE %v: want at least 1, the power of the servers themselves", a.PUE)
	case a.Rule != ByPower && a.Rule != ByUnits:
		return fmt.Errorf("rule %q: want one of %v", a.Rule, Rules)
	case a.Rule == ByPower:
		return nil
	}
	for _, s := range []Server{old, next} {
		if s.Units < 1 || s.Units > a.RackUnits {
			return fmt.Errorf("%s takes %d of a rack's %d units: want 1 to %d for rule %s", s.Name, s.Units,
				a.RackUnits, a.RackUnits, ByUnits)
		}
	}
	return nil
}

func exactly(v float64) power.Interval { return power.Interval{Value: v, Low: v, High: v} }

// times and over are of positive numbers, and of differences that exact ones
// multiply.
func times(a, b power.Interval) power.Interval {
	return power.Interval{Value: a.Value * b.Value, Low: a.Low * b.Low, High: a.High * b.High}
}

func over(a, b power.Interval) power.Interval {
	return power.Interval{Value: a.Value / b.Value, Low: a.Low / b.High, High: a.High / b.Low}
}

// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"errors"
	"fmt"
	"math"

	"github.com/niclane/niclane/bench/power"
)

// A Server is one kind of server that does one kind of work.
type Server struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// Rate is the rate of one server in Gbit/s, RatePerWatt in Gbit/s per W. Both must be above 0.
	Rate        power.Interval `json:"rateGbitPerSecond"`
	RatePerWatt power.Interval `json:"gbitPerSecondPerWatt"`
	// Units is the server's height in rack units; 0 if not known.
	Units int `json:"rackUnits,omitempty"`
}

// Power returns the power of one server, W.
func (s Server) Power() power.Interval { return over(s.Rate, s.RatePerWatt) }

// A Rule says what limits the number of servers in a rack.
type Rule string

// Values of Rule.
const (
	// ByPower gives racks of old servers and racks of new servers the same power.
	ByPower Rule = "power"
	// ByUnits gives both the same number of rack units.
	ByUnits Rule = "units"
)

// Rules lists all rules.
var Rules = []Rule{ByPower, ByUnits}

// Assumptions are the inputs that are assumed, not measured.
type Assumptions struct {
	Rule Rule `json:"rule"`
	// Racks is the number of racks of old servers, at least 1.
	Racks int `json:"racks"`
	// RackPower is the power of the servers in a full rack, W. If it is 0 (not known), ByPower returns
	// only ratios.
	RackPower float64 `json:"rackPowerW,omitempty"`
	// RackUnits is the number of rack units in a rack for servers.
	RackUnits int `json:"rackUnits"`
	// PUE is the power of the whole site divided by the power of its servers, at least 1.
	PUE float64 `json:"pue"`
	// Price of 1 kWh, in any currency; 0: not given.
	Price float64 `json:"pricePerKWh,omitempty"`
}

// A Result is the result of replacing old servers by new ones. A value that is not known is nil.
type Result struct {
	Old         Server      `json:"old"`
	New         Server      `json:"new"`
	Assumptions Assumptions `json:"assumptions"`
	// Formula says in words how Racks was computed.
	Formula string `json:"formula"`
	// Racks is the number of racks of new servers that do the same work as all old ones. Whole is
	// Racks, rounded up.
	Racks power.Interval `json:"racks"`
	Whole int            `json:"wholeRacks"`
	// Rate is the rate of all servers, Gbit/s. Servers has the numbers of old and new servers. Power
	// has the power of all old and of all new servers, W, multiplied by PUE.
	Rate     *power.Interval    `json:"rateGbitPerSecond,omitempty"`
	Servers  *[2]power.Interval `json:"servers,omitempty"`
	Power    *[2]power.Interval `json:"powerW,omitempty"`
	Saved    *power.Interval    `json:"savedW,omitempty"`
	Energy   *power.Interval    `json:"savedKWhPerYear,omitempty"`
	Cost     *power.Interval    `json:"savedPerYear,omitempty"`
	Megawatt float64            `json:"rackPowerForMegawattW,omitempty"`
}

const hoursPerYear = 365 * 24

// Replace computes how many new servers replace the old ones. The caller must make sure that both
// rates are for the same kind of work.
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
		// Megawatt is the power that a full rack must have for the saved racks to save 1 MW.
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

// power sets the fields that depend on the servers' power before and after, in W.
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
		return errors.New("rack power and price: want 0 or more")
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

// times and over multiply and divide positive intervals. times may also multiply a negative
// difference by an exact number.
func times(a, b power.Interval) power.Interval {
	return power.Interval{Value: a.Value * b.Value, Low: a.Low * b.Low, High: a.High * b.High}
}

func over(a, b power.Interval) power.Interval {
	return power.Interval{Value: a.Value / b.Value, Low: a.Low / b.High, High: a.High / b.Low}
}

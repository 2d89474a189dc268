// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/power"
)

// WriteText writes a result as text.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	for _, x := range []struct {
		name string
		s    Server
	}{{"old", r.Old}, {"new", r.New}} {
		line(x.name, "%s: %s Gbit/s at %s Gbit/s per W, that is %s W", x.s.Name, short(x.s.Rate),
			short(x.s.RatePerWatt), short(x.s.Power()))
		line("", "from %s", x.s.Source)
	}
	a := r.Assumptions
	b.WriteString("\n")
	line("racks", "%d become %d: %s", a.Racks, r.Whole, short(r.Racks))
	line("", "= %s, rounded up to whole racks", r.Formula)
	if r.Servers != nil {
		line("servers", "%s become %s, for %s Gbit/s", short(r.Servers[0]), short(r.Servers[1]), short(*r.Rate))
	}
	if r.Saved != nil {
		line("power", "%s kW become %s kW: %s kW saved", kilo(r.Power[0]), kilo(r.Power[1]), kilo(*r.Saved))
		line("energy", "%s MWh saved in a year of full load", kilo(*r.Energy))
	}
	if r.Cost != nil {
		line("cost", "%s saved in that year, at %v per kWh", short(*r.Cost), a.Price)
	}
	if r.Megawatt > 0 {
		line("a megawatt", "is saved where a full rack's servers take %s kW", number(r.Megawatt/1000))
	}
	b.WriteString("\nAssumed, not measured:\n")
	for _, s := range r.assumed() {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// assumed returns the assumptions as sentences.
func (r *Result) assumed() []string {
	a := r.Assumptions
	var out []string
	switch a.Rule {
	case ByPower:
		out = append(out, "full racks of old and of new servers take the same power (--rule power)")
		if a.RackPower > 0 {
			out = append(out, fmt.Sprintf("that power is %s kW (--rack-power)", number(a.RackPower/1000)))
		}
	case ByUnits:
		out = append(out, fmt.Sprintf("a rack is full when its %d units are used (--rule units, --rack-units); its "+
			"power and cooling suffice", a.RackUnits))
	}
	out = append(out, fmt.Sprintf("the site takes %v times the power of its servers (--pue)", a.PUE),
		"every server does the measured work all the time, at the power that was measured with it",
		"the work can be divided among any number of servers; spares, switches and the servers' price are not included")
	return out
}

// short renders a value. It adds the bounds if they differ from the value in the digits that are
// shown.
func short(i power.Interval) string {
	v, low, high := number(i.Value), number(i.Low), number(i.High)
	if low == v && high == v {
		return v
	}
	return fmt.Sprintf("%s (%s to %s)", v, low, high)
}

func kilo(i power.Interval) string {
	return short(power.Interval{Value: i.Value / 1000, Low: i.Low / 1000, High: i.High / 1000})
}

// number renders a value with four significant digits, or with all digits before the decimal point
// if these are more.
func number(v float64) string {
	if v >= 1000 || v <= -1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

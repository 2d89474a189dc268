// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// A Rate is an absolute rate, or a share of the link's rate.
type Rate struct {
	BitsPerSecond uint64 // used when Permille is 0
	Permille      int    // of the link, 1 to 1000
}

// String returns the rate in the form that files use.
func (r Rate) String() string {
	if r.Permille == 0 {
		return BitsText(r.BitsPerSecond)
	}
	return PermilleText(r.Permille)
}

// PermilleText returns a share in the form that files use: "0.5%".
func PermilleText(n int) string {
	s := strconv.Itoa(n / 10)
	if tenth := n % 10; tenth != 0 {
		s += "." + strconv.Itoa(tenth)
	}
	return s + "%"
}

// BitsText returns a rate in bit/s in the largest unit that divides it.
func BitsText(n uint64) string {
	units := []string{"bit", "kbit", "mbit", "gbit", "tbit"}
	i := 0
	for ; i+1 < len(units) && n > 0 && n%1000 == 0; i++ {
		n /= 1000
	}
	return strconv.FormatUint(n, 10) + units[i]
}

// Limits of a rate in bit/s. Below 1 kbit/s a class sends nothing for seconds, and no link
// reaches 10 Tbit/s.
const (
	minRate = 1_000
	maxRate = 10_000_000_000_000
)

const (
	absoluteWant = "a rate from 1kbit to 10tbit in bit kbit mbit gbit tbit (1000) or kibit mibit gibit tibit (1024)"
	rateWant     = "a share of the link (20%), or " + absoluteWant
)

// bitUnits are the units of tc(8) that count bits.
var bitUnits = map[string]int64{
	"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12,
	"kibit": 1 << 10, "mibit": 1 << 20, "gibit": 1 << 30, "tibit": 1 << 40,
}

// The schema's patterns of rates.
const (
	absolutePattern = `^[0-9]+(\.[0-9]+)? ?([KkMmGgTt][Ii]?)?[Bb][Ii][Tt]$`
	percentPattern  = `^[0-9]+(\.[0-9])? ?%$`
)

// RateOrShare returns the kind of a share of the link's rate, or of an absolute rate.
func RateOrShare() Kind[Rate] {
	return Kind[Rate]{
		Want: rateWant,
		Schema: Schema{"anyOf": []any{
			Schema{"type": "string", "pattern": percentPattern},
			Schema{"type": "string", "pattern": absolutePattern},
		}},
		Read: func(v Value) (Rate, bool) { return v.rate(rateWant, true) },
	}
}

// BitRate returns the kind of an absolute rate in bit/s.
func BitRate() Kind[uint64] {
	return Kind[uint64]{
		Want:   absoluteWant,
		Schema: Schema{"type": "string", "pattern": absolutePattern},
		Read: func(v Value) (uint64, bool) {
			r, ok := v.rate(absoluteWant, false)
			return r.BitsPerSecond, ok
		},
	}
}

func (v Value) rate(want string, share bool) (Rate, bool) {
	none := Rate{}
	text, _, _ := v.Scalar()
	n, written, ok := quantity(text, 15, 12)
	if !ok {
		v.Wrong(want)
		return none, false
	}
	unit := strings.ToLower(written)
	switch {
	case unit == "%" && share:
		permille, exact := whole(n, 10)
		if !exact || permille < 1 || permille > 1000 {
			v.Failf("found %s, want a share from 0.1%% to 100%% in steps of 0.1%%", Quote(text))
			return none, false
		}
		return Rate{Permille: int(permille)}, true
	case bitUnits[unit] != 0:
		bits, exact := whole(n, bitUnits[unit])
		if !exact || bits < minRate || bits > maxRate {
			v.Wrong(want)
			return none, false
		}
		return Rate{BitsPerSecond: uint64(bits)}, true
	case unit == "":
		v.Failf("found %s, a number without a unit, want %s", v.Found(), want)
	case strings.HasSuffix(unit, "bps"):
		v.Failf("found %s: tc(8) reads %s as bytes per second, which is 8 times as much; want %s", Quote(text), written,
			want)
	case bitUnits[strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "s")] != 0:
		v.Failf("found %s, want the unit as tc(8) has it: %s", Quote(text),
			strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "s"))
	default:
		v.Failf("found %s, %s is not a unit, want %s", Quote(text), Quote(written), want)
	}
	return none, false
}

// quantity splits a text into a number and a unit, with or without a space between them. The
// number has at most digits digits before the point and fraction digits after it.
func quantity(text string, digits, fraction int) (n *big.Rat, unit string, ok bool) {
	m := quantityExpr.FindStringSubmatch(text)
	if m == nil || len(m[1]) > digits || len(m[2]) > fraction+1 {
		return nil, "", false
	}
	n, ok = new(big.Rat).SetString(m[1] + m[2])
	return n, m[3], ok
}

var quantityExpr = regexp.MustCompile(`^([0-9]+)(\.[0-9]+)? ?([A-Za-z/%]*)$`)

// whole returns n times factor. The bool is false if the product is not a whole number, or does
// not fit.
func whole(n *big.Rat, factor int64) (int64, bool) {
	p := new(big.Rat).Mul(n, new(big.Rat).SetInt64(factor))
	if !p.IsInt() || !p.Num().IsInt64() {
		return 0, false
	}
	return p.Num().Int64(), true
}

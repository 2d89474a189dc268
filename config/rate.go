// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math/big"
	"strings"

	"github.com/niclane/niclane/intent"
)

// Limits of a rate: below 1 kbit/s a class sends nothing for seconds, and no
// link reaches 10 Tbit/s.
const (
	minRate = 1_000
	maxRate = 10_000_000_000_000
)

const (
	absoluteWant = "a rate from 1kbit to 10tbit in bit kbit mbit gbit tbit (1000) or kibit mibit gibit tibit (1024)"
	rateWant     = "a share of the link (20%), or " + absoluteWant
)

// bitUnits are those of tc(8) that count bits.
var bitUnits = map[string]int64{
	"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12,
	"kibit": 1 << 10, "mibit": 1 << 20, "gibit": 1 << 30, "tibit": 1 << 40,
}

var rateExpr = lazy(`^([0-9]{1,15}(?:\.[0-9]{1,12})?) ?([A-Za-z/%]*)$`)

// The schema's pattern of an absolute rate.
const (
	absolutePattern = `^[0-9]+(\.[0-9]+)? ?([KkMmGgTt][Ii]?)?[Bb][Ii][Tt]$`
	percentPattern  = `^[0-9]+(\.[0-9])? ?%$`
)

// rate is a share of the link or an absolute rate.
func rate() kind[intent.Rate] {
	return kind[intent.Rate]{
		want: rateWant,
		schema: schema{"anyOf": []any{
			schema{"type": "string", "pattern": percentPattern},
			schema{"type": "string", "pattern": absolutePattern},
		}},
		read: func(v value) (intent.Rate, bool) { return v.rate(rateWant, true) },
	}
}

// absolute is a rate that cannot be a share.
func absolute() kind[uint64] {
	return kind[uint64]{
		want:   absoluteWant,
		schema: schema{"type": "string", "pattern": absolutePattern},
		read: func(v value) (uint64, bool) {
			r, ok := v.rate(absoluteWant, false)
			return r.BitsPerSecond, ok
		},
	}
}

func (v value) rate(want string, share bool) (intent.Rate, bool) {
	none := intent.Rate{}
	text, _, _ := v.scalar()
	m := rateExpr().FindStringSubmatch(text)
	if m == nil {
		v.wrong(want)
		return none, false
	}
	n, _ := new(big.Rat).SetString(m[1])
	unit := strings.ToLower(m[2])
	switch {
	case unit == "%" && share:
		permille, exact := whole(n, 10)
		if !exact || permille < 1 || permille > 1000 {
			v.failf("found %s, want a share from 0.1%% to 100%% in steps of 0.1%%", quote(text))
			return none, false
		}
		return intent.Rate{Permille: int(permille)}, true
	case bitUnits[unit] != 0:
		bits, exact := whole(n, bitUnits[unit])
		if !exact || bits < minRate || bits > maxRate {
			v.wrong(want)
			return none, false
		}
		return intent.Rate{BitsPerSecond: uint64(bits)}, true
	case unit == "":
		v.failf("found %s, a number without a unit, want %s", v.found(), want)
	case strings.HasSuffix(unit, "bps"):
		v.failf("found %s: tc(8) reads %s as bytes per second, which is 8 times as much; want %s", quote(text), m[2], want)
	case bitUnits[strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "s")] != 0:
		v.failf("found %s, want the unit as tc(8) has it: %s", quote(text),
			strings.TrimSuffix(strings.TrimSuffix(unit, "/s"), "s"))
	default:
		v.failf("found %s, %s is not a unit, want %s", quote(text), quote(m[2]), want)
	}
	return none, false
}

// whole returns n times factor if that is a whole number that fits.
func whole(n *big.Rat, factor int64) (int64, bool) {
	p := new(big.Rat).Mul(n, new(big.Rat).SetInt64(factor))
	if !p.IsInt() || !p.Num().IsInt64() {
		return 0, false
	}
	return p.Num().Int64(), true
}

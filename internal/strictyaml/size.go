// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// byteUnits are the units of IEC 80000-13. KB is 1000 bytes here, as for disks, links and objects of
// the web, and KiB is 1024. Size refuses K and M, which say neither.
var byteUnits = map[string]int64{"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

const sizePattern = `^[0-9]{1,15}(\.[0-9]{1,6})? ?([KMGT]i?)?B$`

// Size returns the kind of an amount of memory. The value is in bytes.
func Size(least, most int64) Kind[int64] {
	number := Schema{"type": "integer", "minimum": least, "maximum": most}
	k := Kind[int64]{
		Want: fmt.Sprintf("bytes from %s to %s, as a number or with a unit: KB, MB, GB, TB (1000) or KiB, MiB, GiB, "+
			"TiB (1024)", SizeText(least), SizeText(most)),
		Schema: Schema{"anyOf": []any{number, Schema{"type": "string", "pattern": sizePattern}}},
	}
	k.Read = func(v Value) (int64, bool) {
		text, plain, _ := v.Scalar()
		n, unit, ok := quantity(text, 15, 6)
		if !ok || strings.ContainsAny(unit, "/%") || unit == "" && !(plain && IsDecimal(text)) {
			v.Wrong(k.Want)
			return 0, false
		}
		factor := byteUnits[unit]
		if factor == 0 {
			var meant []string
			for _, want := range slices.Sorted(maps.Keys(byteUnits)) {
				if len(want) > 1 && (strings.EqualFold(unit, want) || strings.EqualFold(unit, want[:1]) ||
					strings.EqualFold(unit, want[:len(want)-1])) {
					meant = append(meant, fmt.Sprintf("%s (%d bytes)", want, byteUnits[want]))
				}
			}
			if meant == nil {
				v.Failf("found %s, %s is not a unit, want %s", Quote(text), Quote(unit), k.Want)
			} else {
				v.Failf("found %s, want the unit as %s, or the bytes as a number", Quote(text), OneOf(meant))
			}
			return 0, false
		}
		if bytes, exact := whole(n, factor); exact && bytes >= least && bytes <= most {
			return bytes, true
		}
		v.Wrong(k.Want)
		return 0, false
	}
	return k
}

// SizeText returns bytes in the largest unit that divides them.
func SizeText(n int64) string {
	units := []string{"", " KiB", " MiB", " GiB", " TiB"}
	i := 0
	for ; i+1 < len(units) && n > 0 && n%1024 == 0; i++ {
		n /= 1024
	}
	return fmt.Sprint(n) + units[i]
}

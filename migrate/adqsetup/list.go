// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// numbers reads a list of integers and ranges as adqsetup does: order does not matter, and repeated
// numbers count once. twice are the repeated numbers. If the list is unreadable or has too many
// repetitions, numbers returns its parts unchanged, and package config reports the error.
func numbers(text string, most int) (items, twice []string) {
	have, repeated := map[int]bool{}, map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		items = append(items, part)
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, ok1 := number(lo)
		last, ok2 := number(hi)
		if have == nil || !ok1 || !ok2 || first > last || last > most || len(repeated) > maxRepeated {
			have = nil
			continue
		}
		for n := first; n <= last; n++ {
			if have[n] {
				repeated[n] = true
			}
			have[n] = true
		}
	}
	if have == nil {
		return items, nil
	}
	return compact(have), compact(repeated)
}

// maxRepeated is the largest number of repeated numbers in one list.
const maxRepeated = 64

// number parses a decimal integer that is not negative, as Python's int() does. It refuses a plus
// sign.
func number(text string) (n int, ok bool) {
	text = strings.TrimSpace(text)
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && text[0] != '+'
}

// compact returns a set of numbers as ranges in rising order.
func compact(have map[int]bool) []string {
	ids := slices.Sorted(maps.Keys(have))
	var out []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			out = append(out, strconv.Itoa(ids[i]))
		case 1:
			out = append(out, strconv.Itoa(ids[i]), strconv.Itoa(ids[j]))
		default:
			out = append(out, strconv.Itoa(ids[i])+"-"+strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return out
}

// count returns how many numbers a list has. items come from the function numbers.
func count(items []string) int {
	n := 0
	for _, it := range items {
		lo, hi, isRange := strings.Cut(it, "-")
		if !isRange {
			hi = lo
		}
		first, _ := number(lo)
		last, _ := number(hi)
		n += last - first + 1
	}
	return n
}

// addresses reads a list of addresses and networks. If a network has bits after its prefix, it
// clears them, as the kernel does for adqsetup's filters. masked lists these networks.
func addresses(text string) (items, masked []string) {
	have := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if p, err := netip.ParsePrefix(part); err == nil && p.Masked() != p && !p.Addr().Is4In6() {
			masked = append(masked, part)
			part = p.Masked().String()
		}
		if !have[part] {
			items = append(items, part)
		}
		have[part] = true
	}
	return items, masked
}

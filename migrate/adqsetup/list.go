// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// numbers reads a list of integers and ranges as adqsetup does: order and repetitions do not
// matter. twice are the repeated numbers. If the list is unreadable, or has too many
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

// maxRepeated limits the repeated numbers of one list.
const maxRepeated = 64

// number reads a decimal integer from 0 without a plus sign, as Python's int() reads it.
func number(text string) (n int, ok bool) {
	text = strings.TrimSpace(text)
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && text[0] != '+'
}

// compact formats a set as ranges, ascending.
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

// count returns the count of numbers in a list from numbers.
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

// addresses reads a list of addresses. It clears the bits after a network's prefix, as the
// kernel does with adqsetup's filters. masked are the networks that had such bits.
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

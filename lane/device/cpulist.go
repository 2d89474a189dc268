// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// maxCPU is the highest ID that ParseCPUList accepts; the kernel's largest NR_CPUS is 8192.
const maxCPU = 8191

// ParseCPUList parses the kernel's list format, "0-3,8" (cpuset(7), "List format"). It returns
// ascending IDs without duplicates, and no IDs for empty text. IDs above 8191, empty items and
// descending ranges are errors.
func ParseCPUList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var ids []int
	for item := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(item), "-")
		first, err := parseCPU(lo)
		if err != nil {
			return nil, err
		}
		last := first
		if isRange {
			if last, err = parseCPU(hi); err != nil {
				return nil, err
			}
		}
		if last < first {
			return nil, fmt.Errorf("range %q descends", item)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseCPU(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxCPU {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", s, maxCPU)
	}
	return int(n), nil
}

// FormatCPUList returns ascending IDs in the kernel's list format.
func FormatCPUList(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}

// FormatMask returns a set of CPUs or queues in the kernel's mask format:
// hexadecimal, in groups of 32 bits separated by commas (cpuset(7)).
func FormatMask(ids []int) string {
	n := new(big.Int)
	for _, id := range ids {
		n.SetBit(n, id, 1)
	}
	hex := n.Text(16)
	if len(hex) <= 8 {
		return hex
	}
	for len(hex)%8 != 0 {
		hex = "0" + hex
	}
	var groups []string
	for ; hex != ""; hex = hex[8:] {
		groups = append(groups, hex[:8])
	}
	return strings.Join(groups, ",")
}

// ParseMask parses the kernel's mask format into ascending IDs.
func ParseMask(s string) ([]int, error) {
	n, ok := new(big.Int).SetString(strings.ReplaceAll(strings.TrimSpace(s), ",", ""), 16)
	if !ok || n.Sign() < 0 || n.BitLen() > maxCPU+1 {
		return nil, fmt.Errorf("%q is not a mask", s)
	}
	var ids []int
	for i := range n.BitLen() {
		if n.Bit(i) == 1 {
			ids = append(ids, i)
		}
	}
	return ids, nil
}

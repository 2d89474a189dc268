// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Types of SMBIOS structures (DMTF DSP0134 3.7).
const (
	memoryDevice = 17
	endOfTable   = 127
)

// memoryTypes are the values of a memory device's type (7.18.2).
var memoryTypes = map[byte]string{0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4",
	0x1F: "non-volatile", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3"}

// errTable says that the firmware's tables are broken.
var errTable = errors.New("SMBIOS tables: a structure that is too short")

// dimms returns the memory modules of the SMBIOS tables, equal ones as one text, in the order of the
// tables. Empty slots are left out.
func dimms(b []byte) ([]string, error) {
	var order []string
	count := map[string]int{}
	for len(b) >= 4 {
		kind, length := b[0], int(b[1])
		if kind == endOfTable {
			break
		}
		if length < 4 || length > len(b) {
			return nil, errTable
		}
		body, rest := b[:length], b[length:]
		// The strings follow the body, each with a zero byte, and another zero byte ends them.
		end := bytes.Index(rest, []byte{0, 0})
		if end < 0 {
			return nil, errTable
		}
		if kind == memoryDevice {
			if text := dimm(body, strings.Split(string(rest[:end]), "\x00")); text != "" {
				if count[text] == 0 {
					order = append(order, text)
				}
				count[text]++
			}
		}
		b = rest[end+2:]
	}
	for i, text := range order {
		order[i] = fmt.Sprintf("%d × %s", count[text], text)
	}
	return order, nil
}

// dimm describes a memory device (7.18); "" for an empty slot. Old tables have fewer fields.
func dimm(b []byte, texts []string) string {
	u16 := func(at int) int {
		if len(b) < at+2 {
			return 0
		}
		return int(binary.LittleEndian.Uint16(b[at:]))
	}
	u32 := func(at int) int {
		if len(b) < at+4 {
			return 0
		}
		return int(binary.LittleEndian.Uint32(b[at:]) & 0x7fffffff)
	}
	text := func(at int) string {
		if len(b) <= at || b[at] == 0 || int(b[at]) > len(texts) {
			return ""
		}
		return strings.Join(strings.Fields(texts[b[at]-1]), " ")
	}
	size := u16(0x0C)
	mib := size
	switch {
	case size == 0:
		return ""
	case size == 0xffff:
		mib = 0
	case size == 0x7fff:
		mib = u32(0x1C)
	case size&0x8000 != 0: // KiB
		mib = (size & 0x7fff) / 1024
	}
	out := "unknown size"
	switch {
	case mib > 0 && mib%1024 == 0:
		out = fmt.Sprintf("%d GiB", mib/1024)
	case mib > 0:
		out = fmt.Sprintf("%d MiB", mib)
	}
	if len(b) > 0x12 {
		if name := memoryTypes[b[0x12]]; name != "" {
			out += " " + name
		}
	}
	speed := func(at, extended int) int {
		if v := u16(at); v != 0xffff {
			return v
		}
		return u32(extended)
	}
	rated, configured := speed(0x15, 0x54), speed(0x20, 0x58)
	if rated > 0 {
		out += fmt.Sprintf(", %d MT/s", rated)
	}
	if configured > 0 && configured != rated {
		out += fmt.Sprintf(", runs at %d MT/s", configured)
	}
	if name := strings.TrimSpace(text(0x17) + " " + text(0x1A)); name != "" {
		out += ", " + name
	}
	return out
}

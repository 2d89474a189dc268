// SPDX-License-Identifier: Apache-2.0

package count

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/niclane/niclane/internal/traffic/flow"
	"github.com/niclane/niclane/lane/device"
)

// flows holds the lanes' matches as the programs look them up. masks has the masks: first sentOnly
// ones that are only for sent packets, then the others, the most specific one first. keys has the
// lane for a mask's index and a masked flow.
type flows struct {
	masks    []flow.Flow
	sentOnly int
	keys     map[flow.Key]uint32
}

func encode(lanes []Lane) (*flows, error) {
	f := &flows{keys: map[flow.Key]uint32{}}
	type match struct {
		flow, mask flow.Flow
		lane       uint32
	}
	var all []match
	var sentOnly, fragments []flow.Flow // masks that are looked up first and last
	for i, l := range lanes {
		to := &f.masks
		switch {
		case l.SentOnly:
			to = &sentOnly
		case l.Fragments:
			to = &fragments
		}
		for _, m := range l.Matches {
			flow, mask, err := flow.Encode(m)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m, err)
			}
			if l.Fragments {
				if m.LocalPort == 0 && m.RemotePort == 0 {
					continue
				}
				none, whole := [2]byte{}, [2]byte{0xff, 0xff}
				flow.LocalPort, flow.RemotePort, mask.LocalPort, mask.RemotePort = none, none, whole, whole
			}
			all = append(all, match{flow, mask, uint32(i + 1)})
			if !slices.Contains(*to, mask) {
				*to = append(*to, mask)
			}
		}
	}
	slices.SortStableFunc(f.masks, func(a, b flow.Flow) int { return cmp.Compare(compared(&b), compared(&a)) })
	f.masks = append(f.masks, slices.DeleteFunc(fragments,
		func(m flow.Flow) bool { return slices.Contains(f.masks, m) })...)
	f.masks, f.sentOnly = append(sentOnly, f.masks...), len(sentOnly)
	if len(f.masks) > maxPatterns {
		return nil, fmt.Errorf("%d different sets of compared fields, at most %d can be told apart", len(f.masks),
			maxPatterns)
	}
	for _, m := range all {
		f.keys[flow.Key{Pattern: uint64(slices.Index(f.masks, m.mask)), Flow: m.flow}] = m.lane
	}
	return f, nil
}

// laneOf returns the lane of a flow's received packets, or 0 for no lane. It does the same as look_up
// of c/watch.c.
func (f *flows) laneOf(m device.Match) (int, error) {
	packet, _, err := flow.Encode(m)
	if err != nil {
		return 0, err
	}
	for i := f.sentOnly; i < len(f.masks); i++ {
		key := flow.Key{Pattern: uint64(i), Flow: packet}
		for j, b := range f.masks[i].Bytes() {
			key.Flow.Bytes()[j] &= b
		}
		if lane, ok := f.keys[key]; ok {
			return int(lane), nil
		}
	}
	return 0, nil
}

// compared returns how many bits a mask covers.
func compared(mask *flow.Flow) int {
	n := 0
	for _, b := range mask.Bytes() {
		n += bits.OnesCount8(b)
	}
	return n
}

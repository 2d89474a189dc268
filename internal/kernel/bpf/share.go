// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Constants of depart.h.
const (
	ranks     = 8
	costShift = 20
	tables    = 16
)

// sharedLink is struct link of depart.h.
type sharedLink struct {
	Rate, Cost, Horizon, Mark, Ranks uint64
}

// shareRate is struct rate of depart.h.
type shareRate struct {
	Rate, Cost, Lag, Burst uint64
}

// share is struct share of depart.h.
type share struct {
	Guarantee, Ceiling, Part, Flow shareRate
	Rank, Lanes                    uint32
	Table, ByAddress               uint16
	_                              uint32
}

// departed is struct departed of depart.h.
type departed struct {
	Waited, Ns, Marked, Dropped uint64
}

// shareMaps are the maps of depart.h that this package reads or writes.
type shareMaps struct {
	link, shares, departed *ebpf.Map
}

func (m *shareMaps) take(em *ebpf.Map, info *ebpf.MapInfo) bool {
	for _, x := range []struct {
		name string
		size uintptr
		to   **ebpf.Map
	}{
		{egressMapNlLink, unsafe.Sizeof(sharedLink{}), &m.link},
		{egressMapNlShares, unsafe.Sizeof(share{}), &m.shares},
		{egressMapNlDeparted, unsafe.Sizeof(departed{}), &m.departed},
	} {
		if info.Name == x.name && info.ValueSize == uint32(x.size) && *x.to == nil {
			*x.to = em
			return true
		}
	}
	return false
}

func (m *shareMaps) close() error {
	return errors.Join(m.link.Close(), m.shares.Close(), m.departed.Close())
}

// errNoShares means that an older version of niclane attached the classifier.
var errNoShares = fmt.Errorf("%w: an older version of niclane attached this classifier, which knows no departure "+
	"times: roll back, then apply again", unix.EOPNOTSUPP)

// costOf returns the time of a byte at a rate of bit/s, in 2^-20 ns.
func costOf(rate uint64) uint64 { return uint64(math.Round(8e9 * (1 << costShift) / float64(rate))) }

func encodeRate(rate uint64, burst uint32) (r shareRate) {
	if rate > 0 {
		r = shareRate{rate, costOf(rate), uint64(burst) * costOf(rate) >> costShift, uint64(burst)}
	}
	return r
}

func encodeLink(l device.FilterLink) (v sharedLink, err error) {
	if l.Rate == 0 || l.Horizon == 0 || l.Mark == 0 || len(l.Ranks) == 0 {
		return v, fmt.Errorf("%w: rate %d, horizon %d, mark %d, ranks %v: want all of them", unix.EINVAL, l.Rate,
			l.Horizon, l.Mark, l.Ranks)
	}
	v = sharedLink{Rate: l.Rate, Cost: costOf(l.Rate), Horizon: l.Horizon, Mark: l.Mark}
	for _, r := range l.Ranks {
		if err := checkRank(r); err != nil {
			return v, err
		}
		v.Ranks |= 1 << r
	}
	return v, nil
}

func checkRank(r int) error {
	if r < 1 || r > ranks {
		return fmt.Errorf("%w: rank %d: want 1 to %d", unix.EINVAL, r, ranks)
	}
	return nil
}

func (m *maps) sharedLink() (*device.FilterLink, error) {
	if m.shares.link == nil {
		return nil, nil
	}
	var v sharedLink
	if err := m.shares.link.Lookup(uint32(0), &v); err != nil || v.Rate == 0 {
		return nil, err
	}
	l := &device.FilterLink{Filter: m.filter.Key(), Rate: v.Rate, Horizon: v.Horizon, Mark: v.Mark}
	for set := v.Ranks; set != 0; set &= set - 1 {
		l.Ranks = append(l.Ranks, bits.TrailingZeros64(set))
	}
	return l, nil
}

func (c *Client) readLink(l device.FilterLink) (device.Object, error) {
	m, err := c.filterOf(l.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(m.sharedLink())
}

func (c *Client) writeLink(next device.Object, l device.FilterLink) error {
	var v sharedLink
	if next != nil {
		var err error
		if v, err = encodeLink(l); err != nil {
			return err
		}
	}
	m, err := c.haveFilter(l.Filter)
	if err != nil {
		return err
	}
	if m.shares.link == nil {
		return errNoShares
	}
	return m.shares.link.Update(uint32(0), v, ebpf.UpdateExist)
}

func checkRow(n int) error {
	if n < 0 || n >= maxRows {
		return fmt.Errorf("%w: lane %d: want 0 to %d", unix.EINVAL, n, maxRows-1)
	}
	return nil
}

func encodeShare(s device.FilterShare) (v share, err error) {
	if err := checkRank(s.Rank); err != nil {
		return v, err
	}
	v = share{Guarantee: encodeRate(s.Guarantee, s.GuaranteeBurst), Ceiling: encodeRate(s.Ceiling, s.CeilingBurst),
		Part: encodeRate(s.Part, 0), Rank: uint32(s.Rank), Lanes: uint32(max(1, s.Lanes))}
	switch s.Fair {
	case "":
		return v, nil
	case device.FairAddresses:
		v.ByAddress = 1
	case device.FairFlows:
	default:
		return v, fmt.Errorf("%w: fair among %q: want %s or %s", unix.EINVAL, s.Fair, device.FairFlows,
			device.FairAddresses)
	}
	// A flow may send two full frames at once, whatever the MTU.
	v.Flow = encodeRate(s.Flow, 2*1514)
	// The default lane has a table of its own. If there are more lanes than tables, lanes share some:
	// flows of two lanes with one hash then count as one.
	v.Table = 1
	if s.Lane > 0 {
		v.Table = uint16(2 + s.Lane%(tables-1))
	}
	return v, nil
}

// decodeShare is the inverse of encodeShare. It returns nil if there is no share.
func decodeShare(v share, filter string, lane int) *device.FilterShare {
	if v.Rank == 0 {
		return nil
	}
	s := &device.FilterShare{Filter: filter, Lane: lane, Guarantee: v.Guarantee.Rate,
		GuaranteeBurst: uint32(v.Guarantee.Burst), Ceiling: v.Ceiling.Rate, CeilingBurst: uint32(v.Ceiling.Burst),
		Part: v.Part.Rate, Rank: int(v.Rank), Lanes: int(v.Lanes), Flow: v.Flow.Rate}
	switch {
	case v.Table != 0 && v.ByAddress != 0:
		s.Fair = device.FairAddresses
	case v.Table != 0:
		s.Fair = device.FairFlows
	}
	return s
}

func (m *maps) share(lane int) (*device.FilterShare, error) {
	if m.shares.shares == nil {
		return nil, nil
	}
	var v share
	if err := m.shares.shares.Lookup(uint32(lane), &v); err != nil {
		return nil, err
	}
	return decodeShare(v, m.filter.Key(), lane), nil
}

func (c *Client) readShare(s device.FilterShare) (device.Object, error) {
	if err := checkRow(s.Lane); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Key(), err)
	}
	m, err := c.filterOf(s.Filter)
	if m == nil || err != nil {
		return nil, err
	}
	return objectOf(m.share(s.Lane))
}

func (c *Client) writeShare(next device.Object, s device.FilterShare) error {
	if err := checkRow(s.Lane); err != nil {
		return err
	}
	var v share
	if next != nil {
		var err error
		if v, err = encodeShare(s); err != nil {
			return err
		}
	}
	m, err := c.haveFilter(s.Filter)
	if err != nil {
		return err
	}
	if m.shares.shares == nil {
		return errNoShares
	}
	return m.shares.shares.Update(uint32(s.Lane), v, ebpf.UpdateExist)
}

// Departures returns what the shares of niclane's classifiers on a device did to packets. It returns
// nil if nothing is shared there.
func (c *Client) Departures(dev string) ([]device.Departures, error) {
	var out []device.Departures
	err := c.eachFilter(dev, func(m *maps) error {
		if l, err := m.sharedLink(); l == nil || err != nil || m.shares.departed == nil {
			return err
		}
		var v Contents
		if err := v.addShares(m); err != nil {
			return err
		}
		for _, s := range v.Shares {
			var cpus []departed
			if err := m.shares.departed.Lookup(uint32(s.Lane), &cpus); err != nil {
				return fmt.Errorf("%s: %w", s.Key(), err)
			}
			d := device.Departures{Lane: s.Lane}
			for _, x := range cpus {
				d.Waited, d.WaitNs = d.Waited+x.Waited, d.WaitNs+x.Ns
				d.Marked, d.Dropped = d.Marked+x.Marked, d.Dropped+x.Dropped
			}
			out = append(out, d)
		}
		return nil
	})
	return out, err
}

// addShares adds the link and the shares of a program.
func (v *Contents) addShares(m *maps) error {
	l, err := m.sharedLink()
	if err != nil {
		return fmt.Errorf("%s: %w", m.filter.Key(), err)
	}
	if l != nil {
		v.Links = append(v.Links, *l)
	}
	if m.shares.shares == nil {
		return nil
	}
	keys, values := make([]uint32, maxRows), make([]share, maxRows)
	var cursor ebpf.MapBatchCursor
	n, err := m.shares.shares.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // this error ends the map
		return fmt.Errorf("%s: %w", m.filter.Key(), err)
	}
	for i := range n {
		if s := decodeShare(values[i], m.filter.Key(), int(keys[i])); s != nil {
			v.Shares = append(v.Shares, *s)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

func TestSharesReadBack(t *testing.T) {
	withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
		key := filter.Key()
		vethtest.Write(t, c, nil, filter)
		vethtest.Absent(t, "at first", c, device.FilterLink{Filter: key})
		vethtest.Absent(t, "at first", c, device.FilterShare{Filter: key})
		link := device.FilterLink{Filter: key, Rate: 392e9, Horizon: 1e6, Mark: 1e5, Ranks: []int{1, 3, 8}}
		shares := []device.FilterShare{
			{Filter: key, Rank: 8, Lanes: 1, Fair: device.FairFlows, Flow: 1e6, Guarantee: 98e8, GuaranteeBurst: 65536},
			{Filter: key, Lane: 1, Rank: 1, Lanes: 1},
			{Filter: key, Lane: 2, Rank: 2, Lanes: 1, Guarantee: 784e8, GuaranteeBurst: 65536, Ceiling: 196e9,
				CeilingBurst: 2450001},
			{Filter: key, Lane: 16, Rank: 3, Ceiling: 1e6, CeilingBurst: 3028, Part: 123456789, Lanes: 2},
			{Filter: key, Lane: 79, Rank: 3, Lanes: 2, Fair: device.FairAddresses, Guarantee: 1e9, GuaranteeBurst: 62500},
		}
		vethtest.Write(t, c, nil, link)
		for _, s := range shares {
			vethtest.Write(t, c, nil, s)
		}
		all, err := c.Look("v0").Contents()
		same(t, err, &bpf.Contents{Links: []device.FilterLink{link}, Shares: shares}, all)

		other := link
		other.Rate, other.Ranks = 1e6, []int{2}
		vethtest.Write(t, c, link, other)
		changed := shares[1]
		changed.Ceiling, changed.CeilingBurst = 5e8, 6250
		vethtest.Write(t, c, shares[1], changed)

		for name, bad := range map[string]device.Object{
			"no rate":         device.FilterLink{Filter: key, Horizon: 1, Mark: 1, Ranks: []int{1}},
			"no ranks":        device.FilterLink{Filter: key, Rate: 1, Horizon: 1, Mark: 1},
			"no such rank":    device.FilterLink{Filter: key, Rate: 1, Horizon: 1, Mark: 1, Ranks: []int{9}},
			"rank 0":          device.FilterShare{Filter: key, Lane: 1},
			"rank 9":          device.FilterShare{Filter: key, Lane: 1, Rank: 9},
			"a negative lane": device.FilterShare{Filter: key, Lane: -1, Rank: 1},
			"no such lane":    device.FilterShare{Filter: key, Lane: 80, Rank: 1},
			"no such group":   device.FilterShare{Filter: key, Lane: 1, Rank: 1, Fair: "users"},
		} {
			must.Refuse(t, name, c.Write(nil, bad), unix.EINVAL)
		}
		vethtest.Write(t, c, other, other) // a refused write has changed nothing
		vethtest.Write(t, c, other, nil)
		vethtest.Write(t, c, changed, nil)
		shares = append(shares[:1], shares[2:]...)
		all, err = c.Look("v0").Contents()
		same(t, err, &bpf.Contents{Shares: shares}, all)
	})
}

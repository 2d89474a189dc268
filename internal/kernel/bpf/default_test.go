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

func TestDefaultReadsBack(t *testing.T) {
	withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
		vethtest.Write(t, c, nil, filter)
		vethtest.Absent(t, "at first", c, device.FilterDefault{Filter: filter.Key()})
		last := device.Object(nil)
		for _, d := range []device.FilterDefault{
			{Queues: []int{0, 1, 2}}, {Lanes: []int{8, 10, 15}}, {Queues: []int{7}, Lanes: []int{9}},
		} {
			d.Filter = filter.Key()
			vethtest.Write(t, c, last, d)
			last = d
			all, err := c.Look("v0").Contents()
			same(t, err, &bpf.Contents{Defaults: []device.FilterDefault{d}}, all)
		}
		for name, d := range map[string]device.FilterDefault{
			"neither":         {},
			"a gap":           {Queues: []int{1, 3}},
			"the default's":   {Lanes: []int{0}},
			"no priority":     {Lanes: []int{16}},
			"negative queues": {Queues: []int{-1}},
		} {
			d.Filter = filter.Key()
			must.Refuse(t, name, c.Write(last, d), unix.EINVAL)
		}
		vethtest.Write(t, c, last, last) // a refused write has changed nothing
		vethtest.Write(t, c, last, nil)
	})
}

// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestPrepare: Write attaches programs that Prepare has loaded. Close removes those that Write
// did not use.
func TestPrepare(t *testing.T) {
	t.Run("used", func(t *testing.T) {
		withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
			c.Prepare(filter, someEntries[0], generic)
			want := c.Prepared(t)
			if len(want) != 2 {
				t.Fatalf("prepared %v, want two", want)
			}
			for _, o := range []device.Object{filter, generic} {
				vethtest.Write(t, c, nil, o)
			}
			same(t, nil, want, c.Attached(t, filter))
			if left := c.Prepared(t); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	})
	t.Run("unused", func(t *testing.T) {
		withFilter(t, func(t *testing.T, _ *tc.Client, c *bpf.Client) {
			c.Prepare(filter, generic, native, generic)
			prepared := c.Prepared(t)
			vethtest.Write(t, c, nil, filter)
			vethtest.Write(t, c, nil, generic)
			attached := c.Attached(t, filter)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			for _, id := range prepared {
				if slices.Contains(attached, id) {
					continue
				}
				vethtest.Until(t, "an unused program ends", func() bool {
					p, err := ebpf.NewProgramFromID(id)
					if err == nil {
						p.Close()
					}
					return errors.Is(err, os.ErrNotExist)
				})
			}
			if len(prepared) != 4 {
				t.Errorf("prepared %v, want four", prepared)
			}
		})
	})
}

// SPDX-License-Identifier: Apache-2.0

package rtlink_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/rtlink"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

func TestGSOLimit(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 2, func(t *testing.T) {
		c, err := rtlink.Open()
		must.Do(t, err)
		t.Cleanup(func() { c.Close() })
		was, err := c.Read(device.GSOLimit{Dev: vethtest.Dev})
		must.Do(t, err)
		first := was.(device.GSOLimit)
		if first.Max < 1<<15 || first.MaxIPv4 != 0 && first.MaxIPv4 < 1<<15 {
			t.Fatalf("%+v", first)
		}
		small := first
		small.Max = 8000
		if first.MaxIPv4 != 0 {
			small.MaxIPv4 = 6000
		}
		vethtest.Write(t, c, first, small)
		vethtest.Write(t, c, small, first)

		huge := first
		huge.Max = 1 << 30
		must.Refuse(t, "more than the device takes", c.Write(first, huge), unix.EINVAL)
		vethtest.Write(t, c, first, first) // a refused write has changed nothing
		if _, err := c.Read(device.GSOLimit{Dev: "none0"}); !errors.Is(err, unix.ENODEV) {
			t.Errorf("without a device: %v, want ENODEV", err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestKernel tunes a veth in a namespace, leaves the record as a killed process does, and restores
// from it. The veth loses two channels, and one of them had a mask.
func TestKernel(t *testing.T) {
	vethtest.Run(t, 4, func(t *testing.T) {
		vethtest.OwnMounts(t)
		must.Do(t, unix.Mount("none", "/sys", "sysfs", 0, ""))
		mask := "/sys/class/net/" + vethtest.Dev + "/queues/tx-3/xps_rxqs"
		must.Do(t, os.WriteFile(mask, []byte("5"), 0))
		const sysctl = "/proc/sys/net/core/somaxconn"
		value := func(path string) string {
			i, err := newHost().read(item{File: path})
			must.Do(t, err)
			return i.Value
		}
		before := value(sysctl)
		c := Config{Settings: Settings{Channels: "2", Interrupts: All, SendByProcessor: true,
			Sysctls: map[string]string{"net.core.somaxconn": "77"}}, Devices: []string{vethtest.Dev}, Lenient: true}
		h, path := newHost(), filepath.Join(t.TempDir(), "tune")
		rec, err := openRecord(path)
		must.Do(t, err)
		r := Result{Before: map[string]string{}}
		for _, s := range c.stages() {
			must.Do(t, c.make(h, rec, s, &r))
		}
		c.Check = true
		_, err = run(t.Context(), c, newHost())
		must.Do(t, err)
		channels := func() device.Channels {
			now, _, err := h.card.Channels(vethtest.Dev)
			must.Do(t, err)
			return now
		}
		if now := channels(); now.RX != 2 || now.TX != 2 || value(sysctl) != "77" {
			t.Errorf("channels %+v, somaxconn %s", now, value(sysctl))
		}
		must.Do(t, rec.file.Close())
		must.Do(t, Restore(path))
		if now := channels(); now.RX != 4 || now.TX != 4 || value(mask) != "5" || value(sysctl) != before {
			t.Errorf("restored: channels %+v, mask %s, somaxconn %s", now, value(mask), value(sysctl))
		}
		must.Do(t, h.close())
	})
}

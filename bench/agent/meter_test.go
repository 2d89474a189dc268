// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/power/powertest"
)

// TestMeter: the agent reads only the sensors of its own host.
func TestMeter(t *testing.T) {
	root, step := powertest.RAPL(t)
	c, _ := started(t, func(c *Config) { c.Sysfs = root })
	rapl := power.Config{Source: power.RAPL, UpdateInterval: 1e6}
	meter, err := c.Meter(t.Context(), rapl)
	if err != nil {
		t.Fatal(err)
	}
	step(700)
	r, err := meter(t.Context())
	if err != nil || r.StartMono <= 0 || r.Duration <= 0 || r.Readings < 2 ||
		!strings.HasPrefix(r.Provenance.Address, root) {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = meter(t.Context())
	wantError(t, err, "host sut", "no power source")
	for want, bad := range map[string]power.Config{
		"an agent reads its own host's sensors only": {Source: power.Redfish, URL: "https://bmc.example",
			Credentials: "/etc/shadow"},
		"sensors: 0 named": {Source: power.Hwmon, Chip: "x"},
		"/dev/ipmiN":       {Source: power.IPMI, Device: "/dev/sda"},
		"no such file": {Source: power.Hwmon, Chip: "acpi_power_meter",
			Sensors: []string{"power1_average"}},
	} {
		_, err := c.Meter(t.Context(), bad)
		wantError(t, err, "host sut", want)
	}
}

// TestMeterEndsWithItsSession: a meter that was not ended ends with its session.
func TestMeterEndsWithItsSession(t *testing.T) {
	root, _ := powertest.RAPL(t)
	c, a := started(t, func(c *Config) { c.Sysfs = root })
	for range maxMeters {
		if _, err := c.Meter(t.Context(), power.Config{Source: power.RAPL}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Meter(t.Context(), power.Config{Source: power.RAPL})
	wantError(t, err, "more than 16 power sources under way")
	a.mu.Lock()
	s := a.session
	a.mu.Unlock()
	end(t, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.meters) > 0 {
		t.Errorf("%d are left", len(s.meters))
	}
}

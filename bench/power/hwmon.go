// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// hwmonUpdate is the assumed update interval if the driver has no update_interval. Drivers for slow
// buses cache readings for 1 to 2 s.
const hwmonUpdate = int64(2 * time.Second)

// hwmonWrap is the assumed end of a counter. Documentation/hwmon/sysfs-interface.rst does not
// mention wraps, but the hardware of energyN_input mostly counts in 32 bits.
const hwmonWrap = 1 << 32

type hwmon struct{ c Config }

func (h hwmon) dir() string { return filepath.Join(h.c.Sysfs, "class/hwmon") }

func (h hwmon) describe() Provenance {
	return Provenance{
		Source: Hwmon, Address: h.dir(), Protocol: "hwmon", Device: h.c.Chip,
		Covers: "what " + strings.Join(h.c.Sensors, " + ") + " of " + h.c.Chip + " are wired to",
	}
}

// chip returns the directory and the name of the chip in the config.
func (h hwmon) chip() (dir, name string, err error) {
	dirs, err := entries(h.dir())
	if err != nil {
		return "", "", err
	}
	var at, all []string
	for _, d := range dirs {
		n, err := attribute(filepath.Join(d, "name"))
		if err != nil {
			continue // the kernel is removing this chip
		}
		all = append(all, fmt.Sprintf("%s (%s)", n, filepath.Base(d)))
		if filepath.Base(d) == h.c.Chip {
			return d, n, nil
		}
		if n == h.c.Chip {
			at = append(at, d)
		}
	}
	switch len(at) {
	case 1:
		return at[0], h.c.Chip, nil
	case 0:
		list := "nothing"
		if len(all) > 0 {
			list = strings.Join(all, ", ")
		}
		return "", "", fmt.Errorf("%s: no chip %s, there is %s", h.dir(), h.c.Chip, list)
	}
	for i := range at {
		at[i] = filepath.Base(at[i])
	}
	return "", "", fmt.Errorf("%s: %d chips are called %s, want one of %s", h.dir(), len(at), h.c.Chip,
		strings.Join(at, ", "))
}

func (h hwmon) find(ctx context.Context) (sensorSet, error) {
	dir, name, err := h.chip()
	if err != nil {
		return sensorSet{}, err
	}
	f := sensorSet{prov: h.describe()}
	f.prov.Address, f.prov.Device = dir, name
	var paths files
	var errs []error
	for _, s := range h.c.Sensors {
		path := filepath.Join(dir, s)
		v, err := count(path)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; there is %s", err, available(dir))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		paths = append(paths, path)
		f.gears = append(f.gears, h.gear(dir, s, v))
	}
	if len(errs) > 0 {
		return sensorSet{}, errors.Join(errs...)
	}
	f.dev = paths
	if f.gears[0].Quantity == Energy {
		observeUpdates(ctx, f.gears, paths)
	}
	return f, nil
}

// gear describes sensor s, whose present reading is v.
func (h hwmon) gear(dir, s string, v float64) gear {
	g := gear{Sensor: Sensor{
		Name: s, Path: filepath.Join(dir, s), Quantity: Power, Unit: "uW",
		ResolutionW: 1, ResolutionFrom: FromDefault,
		UpdateInterval: hwmonUpdate, UpdateIntervalFrom: FromDefault,
	}, unit: 1e-6}
	if label, err := attribute(filepath.Join(dir, channel(s)+"_label")); err == nil && label != "" {
		g.Name = s + " " + label
	}
	// Both files are in ms. The update interval is the longer of the two.
	for file, averages := range map[string]bool{"update_interval": false, channel(s) + "_average_interval": true} {
		ms, err := count(filepath.Join(dir, file))
		if err != nil || ms < 1 || ms > float64(time.Hour/time.Millisecond) || averages &&
			!strings.HasSuffix(s, "_average") {
			continue
		}
		d := int64(ms) * int64(time.Millisecond)
		if g.UpdateIntervalFrom == FromDefault || d > g.UpdateInterval {
			g.UpdateInterval, g.UpdateIntervalFrom = d, FromSource
		}
		g.Averages = g.Averages || averages
	}
	if strings.HasPrefix(s, "energy") {
		g.Quantity, g.Unit = Energy, "uJ"
		g.ResolutionW, g.ResolutionJ = 0, 1e-3
		if v < hwmonWrap {
			g.wrap, g.guess = hwmonWrap, true
		}
	}
	return g
}

// available lists the power and energy sensors of a chip.
func available(dir string) string {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "nothing"
	}
	var out []string
	for _, e := range list {
		if hwmonSensor.MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	if len(out) == 0 {
		return "no power or energy sensor"
	}
	return strings.Join(out, ", ")
}

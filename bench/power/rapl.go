// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/part/thread"
)

// Domains of RAPL. package contains core and uncore but not dram, although powercap shows all three
// inside it. psys contains everything. Source: Intel's Software Developer's Manual, volume 3B,
// 15.10.
const (
	domainPackage = "package"
	domainDRAM    = "dram"
	domainPsys    = "psys"
	domainCore    = "core"
	domainUncore  = "uncore"
)

var domains = []string{domainPackage, domainDRAM, domainPsys, domainCore, domainUncore}

// contains lists, for a domain, the domains that it contains. Adding one of them would count energy
// twice.
var contains = map[string][]string{
	domainPackage: {domainCore, domainUncore},
	domainPsys:    {domainPackage, domainDRAM, domainCore, domainUncore},
}

const (
	// raplUpdate is the assumed update interval: counters change about every millisecond (Software
	// Developer's Manual 15.10.2).
	raplUpdate = int64(time.Millisecond)
	// raplResolution is the coarsest energy unit in use, 2^-14 J; processors have 2^-14 or 2^-16 J.
	// powercap shows energy in whole µJ. This is finer than both units, so it limits nothing.
	raplResolution = 1.0 / (1 << 14)
)

func (c Config) checkDomains(bad func(string, ...any)) {
	for i, d := range c.Domains {
		if !slices.Contains(domains, d) {
			bad("domains[%d] %q: want %s", i, d, strings.Join(domains, ", "))
		} else if slices.Contains(c.Domains[:i], d) {
			bad("domains[%d] %q: named twice", i, d)
		}
		for _, inner := range contains[d] {
			if slices.Contains(c.Domains, inner) {
				bad("domains: %s contains %s, which would count twice", d, inner)
			}
		}
	}
}

type rapl struct{ c Config }

func (r rapl) dir() string { return filepath.Join(r.c.Sysfs, "class/powercap") }

func (r rapl) describe() Provenance {
	p := Provenance{Source: RAPL, Address: r.dir(), Protocol: "powercap"}
	switch d := r.c.Domains; {
	case len(d) == 0:
		p.Covers = "processor packages and, where they count it, memory"
	default:
		p.Covers = strings.Join(d, ", ")
	}
	p.Covers += "; not network cards, disks, fans, losses of power supplies"
	if slices.Equal(r.c.Domains, []string{domainPsys}) {
		p.Covers = "the platform as its vendor wired psys"
	}
	return p
}

// zone is a directory of powercap with one counter.
type zone struct{ dir, name, domain string }

// zones returns all zones of the control type intel-rapl; processors of AMD have it too. It leaves
// out intel-rapl-mmio, which shows the same packages by another interface.
func (r rapl) zones() ([]zone, error) {
	dirs, err := entries(r.dir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no powercap here (virtual machines have none): %w", r.dir(), err)
	}
	if err != nil {
		return nil, err
	}
	var zones []zone
	for _, d := range dirs {
		if !strings.HasPrefix(filepath.Base(d), "intel-rapl:") {
			continue
		}
		name, err := attribute(filepath.Join(d, "name"))
		if err != nil {
			return nil, err
		}
		// Names are "package-0", "package-0-die-1", "psys", "core", "dram".
		domain, _, _ := strings.Cut(name, "-")
		zones = append(zones, zone{d, name, domain})
	}
	return zones, nil
}

func (r rapl) find(ctx context.Context) (sensorSet, error) {
	zones, err := r.zones()
	if err != nil {
		return sensorSet{}, err
	}
	want := r.c.Domains
	if len(want) == 0 {
		want = []string{domainPackage}
		if slices.ContainsFunc(zones, func(z zone) bool { return z.domain == domainDRAM }) {
			want = append(want, domainDRAM)
		}
	}
	var errs []error
	for _, d := range want {
		if !slices.ContainsFunc(zones, func(z zone) bool { return z.domain == d }) {
			errs = append(errs, fmt.Errorf("no domain %s in %s, only %s", d, r.dir(), names(zones)))
		}
	}
	f := sensorSet{prov: r.describe()}
	f.prov.Device = processor(r.c.Sysfs)
	var paths files
	for _, z := range zones {
		if !slices.Contains(want, z.domain) {
			continue
		}
		path := filepath.Join(z.dir, "energy_uj")
		wrap, err := count(filepath.Join(z.dir, "max_energy_range_uj"))
		if err == nil {
			_, err = count(path)
		}
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: Linux 5.10 and later let only root read energy", err)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		paths = append(paths, path)
		f.gears = append(f.gears, gear{Sensor: Sensor{
			Name: z.name, Path: path, Quantity: Energy, Unit: "uJ",
			ResolutionJ: raplResolution, ResolutionFrom: FromDefault,
			UpdateInterval: raplUpdate, UpdateIntervalFrom: FromDefault,
		}, unit: 1e-6, wrap: wrap})
	}
	if len(errs) > 0 {
		return sensorSet{}, errors.Join(errs...)
	}
	f.prov.Covers = strings.Replace(r.describe().Covers, "processor packages and, where they count it, memory",
		strings.Join(want, ", "), 1)
	f.dev = paths
	observeUpdates(ctx, f.gears, paths)
	return f, nil
}

func names(zones []zone) string {
	var n []string
	for _, z := range zones {
		n = append(n, z.name)
	}
	if len(n) == 0 {
		return "none"
	}
	return strings.Join(n, ", ")
}

// watchUpdates is how long counters of this machine are watched to find their update interval, ns.
// It is about fifty updates of RAPL.
const watchUpdates = int64(50 * time.Millisecond)

// observeUpdates replaces the assumed update interval of counters. It uses the longest time seen
// between two changes, or the whole time for a counter that does not change.
func observeUpdates(ctx context.Context, gears []gear, paths files) {
	last, err := paths.read(ctx)
	if err != nil {
		return // the meter's first reading reports the error
	}
	begin := thread.Monotonic()
	changed := make([]int64, len(paths))
	longest := make([]int64, len(paths))
	seen := make([]int, len(paths))
	for now := begin; now-begin < watchUpdates; {
		v, err := paths.read(ctx)
		now = thread.Monotonic()
		if err != nil {
			return
		}
		for i := range v {
			if v[i] == last[i] {
				continue
			}
			if changed[i] != 0 { // the time before the first change is not a whole interval
				seen[i]++
				longest[i] = max(longest[i], now-changed[i])
			}
			last[i], changed[i] = v[i], now
		}
	}
	for i := range gears {
		switch g := &gears[i]; {
		case seen[i] >= minSteps:
			g.UpdateInterval, g.UpdateIntervalFrom = longest[i], FromReadings
		case g.UpdateIntervalFrom == FromDefault:
			g.UpdateInterval = max(g.UpdateInterval, watchUpdates, longest[i])
		}
	}
}

// processor returns the model name of the first processor; "" if not known.
func processor(sysfs string) string {
	if sysfs != "/sys" {
		return ""
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package power

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree writes files into a new directory, which replaces /sys, and returns its path.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(root, name), text)
	}
	return root
}

// put replaces a file in one step, so that a reader never sees half of it.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// twoPackages returns the files of a machine with two packages. powercap shows dram inside package,
// although package does not count dram's energy. It shows the first package a second time over
// MMIO.
func twoPackages() map[string]string {
	f := map[string]string{}
	zone := func(dir, name, uj string) {
		f["class/powercap/"+dir+"/name"] = name
		f["class/powercap/"+dir+"/energy_uj"] = uj
		f["class/powercap/"+dir+"/max_energy_range_uj"] = "262143328850"
	}
	f["class/powercap/intel-rapl/enabled"] = "1"
	zone("intel-rapl:0", "package-0", "1000000000")
	zone("intel-rapl:0:0", "core", "500000000")
	zone("intel-rapl:0:1", "dram", "200000000")
	zone("intel-rapl:1", "package-1", "2000000000")
	zone("intel-rapl:1:0", "dram", "300000000")
	zone("intel-rapl-mmio:0", "package-0", "1000000000")
	zone("intel-rapl:2", "psys", "9000000000")
	return f
}

// step adds one second of each counter's power, in W, to the counter. Counters wrap at wrap.
func step(t *testing.T, watts map[string]float64, wrap float64) {
	t.Helper()
	for path, w := range watts {
		v, err := count(path)
		if err != nil {
			t.Fatal(err)
		}
		put(t, path, fmt.Sprintf("%.0f", math.Mod(v+w*1e6, wrap)))
	}
}

// over measures for a number of simulated seconds. It calls move once per second.
func over(t *testing.T, c Config, seconds int, move func()) Result {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	f, err := k.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{dev: f.dev, prov: f.prov, gears: f.gears, interval: time.Second, peak: make([]float64, len(f.gears)),
		broken: make([]string, len(f.gears))}
	for i := range seconds + 1 {
		if i > 0 {
			move()
		}
		for p := range m.points {
			m.points[p].at -= second
		}
		if err := m.take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Set the times, so that the time to write the files does not count.
	for p := range m.points {
		m.points[p].at = int64(p) * second
	}
	return m.result(m.points[seconds].at)
}

func TestRAPLSumsWhatDoesNotOverlap(t *testing.T) {
	for _, tt := range []struct {
		name    string
		domains []string
		want    string // directories that must be read
		watts   float64
	}{
		{"default", nil, "intel-rapl:0 intel-rapl:0:1 intel-rapl:1 intel-rapl:1:0", 100 + 10 + 150 + 20},
		{"package", []string{"package"}, "intel-rapl:0 intel-rapl:1", 250},
		{"psys", []string{"psys"}, "intel-rapl:2", 400},
		{"core", []string{"core"}, "intel-rapl:0:0", 60},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, twoPackages())
			watts := map[string]float64{}
			for zone, w := range map[string]float64{"intel-rapl:0": 100, "intel-rapl:0:0": 60, "intel-rapl:0:1": 10,
				"intel-rapl:1": 150, "intel-rapl:1:0": 20, "intel-rapl:2": 400, "intel-rapl-mmio:0": 100} {
				watts[filepath.Join(root, "class/powercap", zone, "energy_uj")] = w
			}
			r := over(t, Config{Source: RAPL, Domains: tt.domains, Sysfs: root}, 60,
				func() { step(t, watts, raplWrap) })
			if r.Estimate == nil {
				t.Fatal(r.NotMeasured)
			}
			var got []string
			for _, s := range r.Provenance.Sensors {
				got = append(got, filepath.Base(filepath.Dir(s.Path)))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("sensors %v, want %v", got, tt.want)
			}
			if r.Method != Counter || math.Abs(r.Power.Value-tt.watts) > 0.01*tt.watts || r.Power.Low > tt.watts ||
				r.Power.High < tt.watts || r.Readings != 61 {
				t.Errorf("%s: %v W, want %v; %d readings", r.Method, r.Power, tt.watts, r.Readings)
			}
		})
	}
}

const raplWrap = 262143328850

func TestRAPLWrap(t *testing.T) {
	root := tree(t, twoPackages())
	path := filepath.Join(root, "class/powercap/intel-rapl:2/energy_uj")
	put(t, path, fmt.Sprint(raplWrap-9000000000))
	r := over(t, Config{Source: RAPL, Domains: []string{"psys"}, Sysfs: root}, 60,
		func() { step(t, map[string]float64{path: 300}, raplWrap) })
	if r.Estimate == nil || r.Wraps != 1 || math.Abs(r.Energy.Value-18000) > 1 {
		t.Errorf("%q, %d wraps, %v", r.NotMeasured, r.Wraps, r.Estimate)
	}
}

// TestRAPLReset checks that a counter that was reset, for example by reloading its driver, is not
// taken for a wrap.
func TestRAPLReset(t *testing.T) {
	root := tree(t, twoPackages())
	path := filepath.Join(root, "class/powercap/intel-rapl:2/energy_uj")
	seconds := 0
	r := over(t, Config{Source: RAPL, Domains: []string{"psys"}, Sysfs: root}, 60, func() {
		if seconds++; seconds == 30 {
			put(t, path, "0")
		}
		step(t, map[string]float64{path: 300}, raplWrap)
	})
	if r.Estimate != nil || r.Wraps != 0 || !strings.Contains(r.NotMeasured,
		"the counter went back from 17700000000 to 300000000, which no wrap explains") {
		t.Errorf("%q, %d wraps, %v", r.NotMeasured, r.Wraps, r.Estimate)
	}
}

func TestRAPLRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		is         error
		domains    []string
		edit       func(t *testing.T, root string)
	}{
		{name: "nothing", want: "virtual machines have none", is: os.ErrNotExist,
			edit: func(t *testing.T, root string) { os.RemoveAll(filepath.Join(root, "class")) }},
		{name: "no such domain", want: "no domain uncore in", domains: []string{"uncore"}},
		{name: "not a number", want: `"twelve", want a number`, edit: func(t *testing.T, root string) {
			put(t, filepath.Join(root, "class/powercap/intel-rapl:0/energy_uj"), "twelve")
		}},
		{name: "negative", want: `"-1", want a number`, edit: func(t *testing.T, root string) {
			put(t, filepath.Join(root, "class/powercap/intel-rapl:1/energy_uj"), "-1")
		}},
		{name: "endless", want: "more than 256 bytes", edit: func(t *testing.T, root string) {
			put(t, filepath.Join(root, "class/powercap/intel-rapl:1/energy_uj"), strings.Repeat("1", 1000))
		}},
		{name: "no range", want: "max_energy_range_uj", is: os.ErrNotExist, edit: func(t *testing.T, root string) {
			os.Remove(filepath.Join(root, "class/powercap/intel-rapl:1/max_energy_range_uj"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, twoPackages())
			if tt.edit != nil {
				tt.edit(t, root)
			}
			_, err := open(t, Config{Source: RAPL, Domains: tt.domains, Sysfs: root}).Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestRAPLPermission checks the error for a user who may not read the energy. The test reads as
// user nobody, because root can read all files.
func TestRAPLPermission(t *testing.T) {
	root := tree(t, twoPackages())
	if err := os.Chmod(filepath.Join(root, "class/powercap/intel-rapl:0/energy_uj"), 0); err != nil {
		t.Fatal(err)
	}
	asNobody(t, root, func() {
		_, err := open(t, Config{Source: RAPL, Sysfs: root}).Start(t.Context())
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "only root read energy") {
			t.Errorf("error %v", err)
		}
	})
}

func TestSensorVanishes(t *testing.T) {
	root := tree(t, twoPackages())
	c := Config{Source: RAPL, Domains: []string{"psys"}, Sysfs: root, Interval: 1e6}
	m, err := open(t, c).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(root, "class/powercap/intel-rapl:2"))
	begin := time.Now()
	until(t, "some readings", func() bool { return time.Since(begin) > 50*time.Millisecond })
	r := m.Stop(t.Context())
	if r.Estimate != nil || r.Missed == 0 || !strings.Contains(r.NotMeasured, "the sensor is gone") {
		t.Errorf("%v, %d missed, %q", r.Estimate, r.Missed, r.NotMeasured)
	}
}

func chips() map[string]string {
	return map[string]string{
		"class/hwmon/hwmon0/name":                    "coretemp",
		"class/hwmon/hwmon0/temp1_input":             "40000",
		"class/hwmon/hwmon1/name":                    "power_meter",
		"class/hwmon/hwmon1/power1_average":          "212000000",
		"class/hwmon/hwmon1/power1_average_interval": "20",
		"class/hwmon/hwmon2/name":                    "ina226",
		"class/hwmon/hwmon2/power1_input":            "30000000",
		"class/hwmon/hwmon2/power1_label":            "VDD_NIC",
		"class/hwmon/hwmon2/update_interval":         "10",
		"class/hwmon/hwmon2/energy1_input":           "4294900000",
		"class/hwmon/hwmon3/name":                    "ina226",
		"class/hwmon/hwmon3/power1_input":            "31000000",
	}
}

func TestHwmon(t *testing.T) {
	root := tree(t, chips())
	sensor := func(chip, name string) Result {
		t.Helper()
		c := Config{Source: Hwmon, Chip: chip, Sensors: []string{name}, Sysfs: root, Interval: 5e6}
		return measured(t, c, func() {
			begin := time.Now()
			until(t, "updates", func() bool { return time.Since(begin) > 300*time.Millisecond })
		})
	}
	r := sensor("power_meter", "power1_average")
	if s := r.Provenance.Sensors[0]; r.Power.Value < 211.9 || r.Power.Value > 212.1 || s.UpdateInterval != 20e6 ||
		s.UpdateIntervalFrom != FromSource || !s.Averages {
		t.Errorf("%v W, sensor %+v", r.Power, s)
	}
	r = sensor("hwmon2", "power1_input")
	if s := r.Provenance.Sensors[0]; s.Name != "power1_input VDD_NIC" || s.UpdateInterval != 10e6 || s.Averages ||
		r.Provenance.Device != "ina226" {
		t.Errorf("sensor %+v of %q", s, r.Provenance.Device)
	}
}

// TestHwmonWrap checks a 32-bit counter that steps back. It is a wrap if the power stays plausible,
// and the result says that the wrap was assumed.
func TestHwmonWrap(t *testing.T) {
	root := tree(t, chips())
	path := filepath.Join(root, "class/hwmon/hwmon2/energy1_input")
	put(t, path, fmt.Sprint(hwmonWrap-1000000000))
	c := Config{Source: Hwmon, Chip: "hwmon2", Sensors: []string{"energy1_input"}, Sysfs: root}
	r := over(t, c, 60, func() { step(t, map[string]float64{path: 25}, hwmonWrap) })
	if r.Estimate == nil || r.Wraps != 1 || math.Abs(r.Energy.Value-1500) > 1 {
		t.Fatalf("%q, %d wraps, %v", r.NotMeasured, r.Wraps, r.Estimate)
	}
	if w := strings.Join(r.Warnings, "\n"); !strings.Contains(w,
		"taken as a wrap at 4294967296, which its driver does not document") {
		t.Errorf("warnings %q", w)
	}
}

func TestHwmonRefuses(t *testing.T) {
	root := tree(t, chips())
	for _, tt := range []struct{ chip, sensor, want string }{
		{"ina226", "power1_input", "2 chips are called ina226, want one of hwmon2, hwmon3"},
		{"nct6775", "power1_input", "no chip nct6775, there is coretemp (hwmon0), power_meter (hwmon1)"},
		{"power_meter", "power1_input", "no such file or directory; there is power1_average"},
		{"coretemp", "power1_input", "there is no power or energy sensor"},
	} {
		_, err := open(t, Config{Source: Hwmon, Chip: tt.chip, Sensors: []string{tt.sensor},
			Sysfs: root}).Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of %s: error %v, want %q", tt.sensor, tt.chip, err, tt.want)
		}
	}
}

func FuzzCount(f *testing.F) {
	f.Add("123456\n")
	f.Add("18446744073709551616")
	f.Add("0x10")
	path := filepath.Join(f.TempDir(), "energy_uj")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := count(path); err == nil && (v < 0 || strings.ContainsAny(text, "-+xe.")) {
			t.Errorf("count(%q) = %v", text, v)
		}
	})
}

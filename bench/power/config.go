// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sources of power readings.
const (
	RAPL    = "rapl"    // powercap in sysfs: processors and memory
	Hwmon   = "hwmon"   // sensors in sysfs
	IPMI    = "ipmi"    // DCMI Get Power Reading of a BMC
	Redfish = "redfish" // a BMC over HTTPS
	Raritan = "raritan" // a Raritan PDU over SNMP (PDU2-MIB)
	SNMP    = "snmp"    // any PDU over SNMP, by OID
	None    = "none"    // not measured, and the result says so
)

// Config names a source and says how to reach it. Durations are in ns. Setting a field that the
// source does not use is an error, because it would have no effect.
type Config struct {
	// Source is one of RAPL, Hwmon, IPMI, Redfish, Raritan, SNMP, None.
	Source string `json:"source"`
	// Interval is the time between readings: 1 ms to 60 s, over a network at least 10 ms (default 1
	// s). A counter must be read more than twice before it wraps.
	Interval int64 `json:"intervalNs,omitempty"`
	// Timeout limits one exchange with the source: 1 ms to 60 s (default 2 s).
	Timeout int64 `json:"timeoutNs,omitempty"`
	// UpdateInterval is the time between two updates of the sensor, up to 1 h, if its data sheet gives
	// one. It overrides the interval that the sensor reports and the one seen in readings.
	UpdateInterval int64 `json:"updateIntervalNs,omitempty"`
	// AccuracyPercent is the accuracy of a reading by the data sheet, more than 0 and less than 50. 0
	// means unknown; the result then says so.
	AccuracyPercent float64 `json:"accuracyPercent,omitempty"`

	// Domains are RAPL domains: some of "package", "dram", "psys", "core", "uncore". The default is
	// package and, if it exists, dram. Combinations that count the same energy twice are refused.
	Domains []string `json:"domains,omitempty"`

	// Chip is the name of a chip of Hwmon; hwmonN if several chips have the same name.
	Chip string `json:"chip,omitempty"`
	// Sensors are the sensors of that chip to add up: "power1_input", "power1_average" or
	// "energy1_input". All must be power, or all energy.
	Sensors []string `json:"sensors,omitempty"`

	// Address of the BMC (IPMI) or PDU as HOST:PORT; the port may be left out.
	Address string `json:"address,omitempty"`
	// Credentials is the absolute path of a file that only its owner can read, or "env:PREFIX": see
	// the package documentation.
	Credentials string `json:"credentials,omitempty"`

	// Device is a device file for IPMI, such as "/dev/ipmi0". It replaces Address.
	Device string `json:"device,omitempty"`
	// CipherSuite of IPMI's RMCP+ session, 3 or 17 (default 17).
	CipherSuite int `json:"cipherSuite,omitempty"`
	// Privilege is the level of IPMI's session: "user" (default) is enough for DCMI. Some BMCs require
	// "operator" or "administrator".
	Privilege string `json:"privilege,omitempty"`

	// URL of Redfish: "https://bmc.example".
	URL string `json:"url,omitempty"`
	// CAFile is the absolute path of a PEM file with the authority of the BMC's certificate (default:
	// the system's authorities).
	CAFile string `json:"caFile,omitempty"`
	// SkipVerify accepts any certificate. The result then has a warning.
	SkipVerify bool `json:"skipVerify,omitempty"`
	// Chassis are the Ids of the Redfish chassis to add up. It is required if several report power.
	Chassis []string `json:"chassis,omitempty"`

	// Version of SNMP: "3" (default), or "2c", which has no authentication and no encryption.
	Version string `json:"version,omitempty"`
	// Auth of SNMPv3: "sha", "sha224", "sha256" (default), "sha384", "sha512".
	Auth string `json:"auth,omitempty"`
	// Privacy of SNMPv3: "aes" (default), "aes192", "aes256", or "none".
	Privacy string `json:"privacy,omitempty"`

	// PDU is the number of the Raritan unit in a cascade, 1 to 65535 (default 1).
	PDU int `json:"pdu,omitempty"`
	// Inlets (default [1]) or Outlets are numbers on a Raritan PDU, at most 12. Name one for each
	// power supply of the host; they are added up.
	Inlets  []int `json:"inlets,omitempty"`
	Outlets []int `json:"outlets,omitempty"`

	// Model is the model of an SNMP PDU whose OIDs this package knows: "apc".
	Model string `json:"model,omitempty"`
	// OIDs are readings of an SNMP PDU, at most 12; they replace Model. Readings of power are added
	// up, and so are readings of energy.
	OIDs []OID `json:"oids,omitempty"`

	// Sysfs is the directory where sysfs is mounted; "" is /sys. Tests use a directory of their own.
	Sysfs string `json:"-"`
}

// Local reports whether the source can only measure the machine that reads it.
func (c Config) Local() bool { return c.Source == RAPL || c.Source == Hwmon || c.Device != "" }

// OID is one reading of an SNMP agent.
type OID struct {
	// OID is the full number of one instance: ".1.3.6.1.4.1...".
	OID string `json:"oid"`
	// Unit is "W" or "kW" for power, "J", "Wh" or "kWh" for energy.
	Unit string `json:"unit"`
	// Scale is how many Units one count is (default 1): 0.1 if the agent counts tenths.
	Scale float64 `json:"scale,omitempty"`
}

// units has each unit's size in W or J.
var units = map[string]struct {
	energy bool
	si     float64
}{
	"W": {false, 1}, "kW": {false, 1e3},
	"J": {true, 1}, "Wh": {true, 3600}, "kWh": {true, 3.6e6},
}

// usedBy lists the sources that use a key of an experiment's file. A key that is not listed is for
// all sources.
var usedBy = map[string][]string{
	"domains": {RAPL},
	"chip":    {Hwmon}, "sensors": {Hwmon},
	"address":     {IPMI, Raritan, SNMP},
	"credentials": {IPMI, Redfish, Raritan, SNMP},
	"privilege":   {IPMI},
	"device":      {IPMI}, "cipher-suite": {IPMI},
	"url": {Redfish}, "ca-file": {Redfish}, "skip-verify": {Redfish}, "chassis": {Redfish},
	"version": {Raritan, SNMP}, "auth": {Raritan, SNMP}, "privacy": {Raritan, SNMP}, "pdu": {Raritan, SNMP},
	"inlets": {Raritan}, "outlets": {Raritan},
	"model": {SNMP}, "oids": {SNMP},
}

// Sources are the names of all sources.
var Sources = []string{RAPL, Hwmon, IPMI, Redfish, Raritan, SNMP, None}

// maxSensors limits a list of sensors, so that a reading fits into one SNMP request of at most 60
// OIDs.
const maxSensors = 12

var (
	hwmonSensor = regexp.MustCompile(`^(power[0-9]+_(input|average)|energy[0-9]+_input)$`)
	ipmiDevice  = regexp.MustCompile(`^/dev/ipmi([0-9]{1,3})$`)
	chassisID   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	sysfsName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}$`)
	oidNumbers  = regexp.MustCompile(`^\.?1(\.(0|[1-9][0-9]{0,9})){3,60}$`)
)

// WithDefaults returns c with zero fields replaced by their defaults.
func (c Config) WithDefaults() Config {
	str := func(p *string, v string) { *p = cmp.Or(*p, v) }
	c.Sysfs = cmp.Or(c.Sysfs, "/sys")
	if c.Source == None || c.Source == "" {
		return c
	}
	c.Interval = cmp.Or(c.Interval, int64(time.Second))
	c.Timeout = cmp.Or(c.Timeout, 2*int64(time.Second))
	port := ""
	switch c.Source {
	case IPMI:
		if c.Device == "" {
			str(&c.Privilege, "user")
			c.CipherSuite = cmp.Or(c.CipherSuite, 17)
		}
		port = "623"
	case Raritan, SNMP:
		str(&c.Version, "3")
		if c.Version == "3" {
			str(&c.Auth, "sha256")
			str(&c.Privacy, "aes")
		}
		if c.PDU == 0 && (c.Source == Raritan || c.Model != "") {
			c.PDU = 1
		}
		if c.Source == Raritan && len(c.Inlets)+len(c.Outlets) == 0 {
			c.Inlets = []int{1}
		}
		port = "161"
	}
	if port != "" && c.Address != "" {
		if _, _, err := net.SplitHostPort(c.Address); err != nil {
			c.Address = net.JoinHostPort(strings.Trim(c.Address, "[]"), port)
		}
	}
	return c
}

// A Problem is an error in a Config. Key is the key in the experiment's file: "cipher-suite", or
// "sensors[1]" for an item of a list. It is "" if several keys contradict each other.
type Problem struct{ Key, Message string }

// Problems returns every error in c, with keys and values as in the experiment's file. It reads no
// file.
func (c Config) Problems() []Problem {
	_, errs := c.complete()
	var out []Problem
	for _, err := range errs {
		text := err.Error()
		key := text[:strings.IndexAny(text, " :,")]
		value, want, found := strings.Cut(text[len(key):], ": want ")
		switch {
		case strings.HasPrefix(value, ","): // the error is about several keys
			out = append(out, Problem{"", text})
		case found && value == ` ""`:
			out = append(out, Problem{"", key + " is missing, want " + want})
		case found && value != "":
			out = append(out, Problem{key, "found" + value + ", want " + want})
		case found:
			out = append(out, Problem{key, "want " + want})
		default:
			_, message, _ := strings.Cut(text[len(key):], ": ")
			out = append(out, Problem{key, message})
		}
	}
	return out
}

// withDefaults returns c with defaults filled in, or an error that contains every error in c.
func (c Config) withDefaults() (Config, error) {
	c, errs := c.complete()
	if len(errs) > 0 {
		return c, fmt.Errorf("power: %w", errors.Join(errs...))
	}
	return c, nil
}

// complete fills in defaults and returns all errors in c. Each error's text begins with its key.
func (c Config) complete() (Config, []error) {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if !slices.Contains(Sources, c.Source) {
		bad("source %q: want one of %s", c.Source, strings.Join(Sources, ", "))
		return c, errs
	}
	c.misplaced(bad)
	c = c.WithDefaults()
	if c.Source != None {
		least := int64(10 * time.Millisecond)
		if c.Source == RAPL || c.Source == Hwmon {
			least = int64(time.Millisecond)
		}
		within := func(name string, v, lo, hi int64) {
			if v < lo || v > hi {
				bad("%s %v: want %v to %v", name, time.Duration(v), time.Duration(lo), time.Duration(hi))
			}
		}
		within("interval", c.Interval, least, int64(time.Minute))
		within("timeout", c.Timeout, int64(time.Millisecond), int64(time.Minute))
		within("update-interval", c.UpdateInterval, 0, int64(time.Hour))
		if !(c.AccuracyPercent >= 0 && c.AccuracyPercent < 50) {
			bad("accuracy %v%%: want 0%% to 50%%", c.AccuracyPercent)
		}
	}
	switch c.Source {
	case RAPL:
		c.checkDomains(bad)
	case Hwmon:
		c.checkHwmon(bad)
	case IPMI:
		c.checkIPMI(bad)
	case Redfish:
		c.checkRedfish(bad)
	case Raritan, SNMP:
		c.checkSNMP(bad)
	}
	return c, errs
}

// fileKey returns the key that an experiment's file uses for a field with this JSON name.
func fileKey(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "Ns"), "Percent")
	return capital.ReplaceAllStringFunc(name, func(s string) string { return "-" + strings.ToLower(s) })
}

var capital = regexp.MustCompile("[A-Z]")

// misplaced reports the fields that are set although the source does not use them.
func (c Config) misplaced(bad func(string, ...any)) {
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" || name == "source" || v.Field(i).IsZero() {
			continue
		}
		key := fileKey(name)
		by, some := usedBy[key]
		switch {
		case some && !slices.Contains(by, c.Source):
			bad("%s: not a key of source %s, only of %s", key, c.Source, strings.Join(by, ", "))
		case c.Source == None:
			bad("%s: not a key of source %s", key, None)
		}
	}
}

func (c Config) checkHwmon(bad func(string, ...any)) {
	if !sysfsName.MatchString(c.Chip) {
		bad("chip %q: want the content of a name file in /sys/class/hwmon/hwmon*, or hwmonN", c.Chip)
	}
	if len(c.Sensors) == 0 || len(c.Sensors) > maxSensors {
		bad("sensors: %d named, want 1 to %d, which are added up", len(c.Sensors), maxSensors)
	}
	for i, s := range c.Sensors {
		switch {
		case !hwmonSensor.MatchString(s):
			bad("sensors[%d] %q: want powerN_input, powerN_average or energyN_input", i, s)
		case slices.Contains(c.Sensors[:i], s):
			bad("sensors[%d] %q: named twice", i, s)
		case strings.HasPrefix(s, "energy") != strings.HasPrefix(c.Sensors[0], "energy"):
			bad("sensors[%d] %q: power and energy cannot be added up", i, s)
		case slices.ContainsFunc(c.Sensors[:i], func(o string) bool { return channel(o) == channel(s) }):
			bad("sensors[%d] %q: the same channel twice", i, s)
		}
	}
}

// channel returns "power1" for "power1_average".
func channel(sensor string) string {
	c, _, _ := strings.Cut(sensor, "_")
	return c
}

func (c Config) checkAddress(bad func(string, ...any)) {
	host, port, err := net.SplitHostPort(c.Address)
	if n, e := strconv.Atoi(port); c.Address == "" || err != nil || host == "" || strings.ContainsAny(host, "@/ ") ||
		e != nil || n < 1 || n > 65535 {
		bad("address %q: want HOST or HOST:PORT", c.Address)
	}
}

func (c Config) checkCredentials(bad func(string, ...any)) {
	if name, env := strings.CutPrefix(c.Credentials, "env:"); env {
		if !envPrefix.MatchString(name) {
			bad("credentials %q: want env:PREFIX with capital letters, digits and underscores", c.Credentials)
		}
	} else if !filepath.IsAbs(c.Credentials) {
		// No value in the message: it could be a password that the user put here by mistake.
		bad("credentials: want the absolute path of a file, or env:PREFIX")
	}
}

func (c Config) checkIPMI(bad func(string, ...any)) {
	if (c.Device == "") == (c.Address == "") {
		bad("address, device: want one of them")
		return
	}
	if c.Device != "" {
		if !ipmiDevice.MatchString(c.Device) {
			bad("device %q: want /dev/ipmiN", c.Device)
		}
		if c.Credentials != "" {
			bad("credentials: %s needs none", c.Device)
		}
		if c.CipherSuite != 0 {
			bad("cipher-suite: %s has none", c.Device)
		}
		if c.Privilege != "" {
			bad("privilege: %s has none", c.Device)
		}
		return
	}
	c.checkAddress(bad)
	c.checkCredentials(bad)
	if c.CipherSuite != 3 && c.CipherSuite != 17 {
		bad("cipher-suite %d: want 3 or 17", c.CipherSuite)
	}
	if privileges[c.Privilege] == 0 {
		bad("privilege %q: want user, operator or administrator", c.Privilege)
	}
}

func (c Config) checkRedfish(bad func(string, ...any)) {
	u, err := url.Parse(c.URL)
	switch {
	// The message leaves out url.Parse's error, because that repeats the text, which may contain a
	// password.
	case err != nil:
		bad("url: not a URL")
	case u.User != nil:
		bad("url: holds a user or password; they belong in credentials")
	case u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		bad("url %q: want https://HOST or https://HOST:PORT", c.URL)
	}
	c.checkCredentials(bad)
	if c.CAFile != "" && !filepath.IsAbs(c.CAFile) {
		bad("ca-file %q: want an absolute path", c.CAFile)
	}
	if c.CAFile != "" && c.SkipVerify {
		bad("ca-file, skip-verify: want at most one of them")
	}
	if len(c.Chassis) > maxSensors {
		bad("chassis: %d named, want at most %d", len(c.Chassis), maxSensors)
	}
	for i, id := range c.Chassis {
		if !chassisID.MatchString(id) {
			bad("chassis[%d] %q: want an Id as in /redfish/v1/Chassis/Id", i, id)
		} else if slices.Contains(c.Chassis[:i], id) {
			bad("chassis[%d] %q: named twice", i, id)
		}
	}
}

func (c Config) checkSNMP(bad func(string, ...any)) {
	c.checkAddress(bad)
	c.checkCredentials(bad)
	switch c.Version {
	case "3":
		if authProtocols[c.Auth] == 0 {
			bad("auth %q: want sha, sha224, sha256, sha384 or sha512", c.Auth)
		}
		if privProtocols[c.Privacy] == 0 {
			bad("privacy %q: want aes, aes192, aes256 or none", c.Privacy)
		}
	case "2c":
		if c.Auth != "" || c.Privacy != "" {
			bad("auth, privacy: SNMP version 2c has neither")
		}
	default:
		bad("version %q: want 3 or 2c", c.Version)
	}
	if c.PDU < 0 || c.PDU > 65535 {
		bad("pdu %d: want 1 to 65535", c.PDU)
	}
	if c.Source == Raritan {
		if len(c.Inlets) > 0 && len(c.Outlets) > 0 {
			bad("inlets, outlets: an inlet includes what its outlets draw; want one of them")
		}
		c.checkNumbers(bad, "inlets", c.Inlets)
		c.checkNumbers(bad, "outlets", c.Outlets)
		return
	}
	_, known := models[c.Model]
	switch {
	case (c.Model == "") == (len(c.OIDs) == 0):
		bad("model, oids: want one of them")
	case c.Model != "" && !known:
		bad("model %q: want %s", c.Model, strings.Join(modelNames(), ", "))
	case c.Model == "" && c.PDU != 0:
		bad("pdu: want none with oids, which name their instance")
	}
	if len(c.OIDs) > maxSensors {
		bad("oids: %d named, want at most %d", len(c.OIDs), maxSensors)
	}
	for i, o := range c.OIDs {
		if !oidNumbers.MatchString(o.OID) {
			bad("oids[%d].oid %q: want numbers as in .1.3.6.1.4.1.318.1.1.26.4.3.1.5.1", i, o.OID)
		} else if slices.ContainsFunc(c.OIDs[:i], func(x OID) bool { return dotted(x.OID) == dotted(o.OID) }) {
			bad("oids[%d].oid %q: named twice", i, o.OID)
		}
		if _, ok := units[o.Unit]; !ok {
			bad("oids[%d].unit %q: want W or kW for power, J, Wh or kWh for energy", i, o.Unit)
		}
		if o.Scale < 0 || math.IsNaN(o.Scale) || o.Scale != 0 && (o.Scale < 1e-9 || o.Scale > 1e9) {
			bad("oids[%d].scale %v: want 1e-9 to 1e9", i, o.Scale)
		}
	}
}

func (c Config) checkNumbers(bad func(string, ...any), key string, list []int) {
	if len(list) > maxSensors {
		bad("%s: %d named, want at most %d", key, len(list), maxSensors)
	}
	for i, n := range list {
		if n < 1 || n > 65535 {
			bad("%s[%d] %d: want 1 to 65535", key, i, n)
		} else if slices.Contains(list[:i], n) {
			bad("%s[%d] %d: named twice", key, i, n)
		}
	}
}

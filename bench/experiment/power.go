// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/power"
	y "github.com/niclane/niclane/internal/strictyaml"
)

// maxSensors is the largest number of sensors that a source can have. Package power has the same
// limit.
const maxSensors = 12

func powerKeys() []y.Key[power.Config] {
	text := func(what string) y.Kind[string] { return line(what, 1024) }
	return []y.Key[power.Config]{
		y.Of("source", y.Word(power.Sources...), "required",
			"RAPL counters of processors and memory, hwmon sensors, a BMC by IPMI DCMI or by Redfish, a Raritan "+
				"PDU, or another PDU over SNMP. With `none` the result says so.",
			func(c *power.Config, x string) { c.Source = x }),
		y.Of("interval", y.Duration(time.Millisecond, time.Minute), "1s",
			"Time between readings; over a network at least 10ms.",
			func(c *power.Config, x int64) { c.Interval = x }),
		y.Of("timeout", y.Duration(time.Millisecond, time.Minute), "2s",
			"Limit of one exchange with the source.",
			func(c *power.Config, x int64) { c.Timeout = x }),
		y.Of("update-interval", y.Duration(time.Microsecond, time.Hour), "what the sensor reports or its readings show",
			"Time between new values of the sensor, by its data sheet.",
			func(c *power.Config, x int64) { c.UpdateInterval = x }),
		y.Of("accuracy", y.Share(1, 499), "unknown; the result says so",
			"Error of a reading, by the data sheet.",
			func(c *power.Config, x int) { c.AccuracyPercent = float64(x) / 10 }),
		y.Of("domains", y.OneOrList(y.Word("package", "dram", "psys", "core", "uncore"), 5),
			"package, and dram if there is one",
			"RAPL domains, which are added up.",
			func(c *power.Config, x []string) { c.Domains = x }),
		y.Of("chip", text("the name of a chip"), "required with hwmon",
			"hwmon chip by its name, or hwmonN if several chips have the name.",
			func(c *power.Config, x string) { c.Chip = x }),
		y.Of("sensors", y.OneOrList(text("powerN_input, powerN_average or energyN_input"), maxSensors),
			"required with hwmon",
			"Sensors of the chip, which are added up.",
			func(c *power.Config, x []string) { c.Sensors = x }),
		y.Of("address", text("HOST or HOST:PORT"), "required with a BMC or PDU",
			"Address of the BMC (ipmi) or PDU.",
			func(c *power.Config, x string) { c.Address = x }),
		y.Of("device", text("/dev/ipmiN"), "none",
			"ipmi device on the SUT, instead of address and credentials.",
			func(c *power.Config, x string) { c.Device = x }),
		y.Of("url", text("https://HOST"), "required with redfish",
			"URL of the BMC.",
			func(c *power.Config, x string) { c.URL = x }),
		y.Of("credentials", text("the absolute path of a file, or env:PREFIX"), "required over a network",
			"A file with lines `user=`, `password=`, `privacyPassword=`, `community=` that only its owner can "+
				"read. Or the beginning of the names of environment variables.",
			func(c *power.Config, x string) { c.Credentials = x }),
		y.Of("cipher-suite", y.Integer(3, 17), "17",
			"Cipher suite of ipmi: 3 or 17.",
			func(c *power.Config, x int) { c.CipherSuite = x }),
		y.Of("privilege", y.Word("user", "operator", "administrator"), "user",
			"Privilege that ipmi asks for. Take more only if a BMC demands it.",
			func(c *power.Config, x string) { c.Privilege = x }),
		y.Of("ca-file", text("the absolute path of a PEM file"), "the system's",
			"Authority of redfish's certificate.",
			func(c *power.Config, x string) { c.CAFile = x }),
		y.Of("skip-verify", y.Boolean(), "off",
			"On: accepts any certificate; the result carries a warning.",
			func(c *power.Config, x bool) { c.SkipVerify = x }),
		y.Of("chassis", y.OneOrList(text("the Id of a chassis"), maxSensors), "the only one that reports power",
			"Chassis of redfish, which are added up.",
			func(c *power.Config, x []string) { c.Chassis = x }),
		y.Of("version", snmpVersion(), "3",
			"SNMP version; 2c protects nothing.",
			func(c *power.Config, x string) { c.Version = x }),
		y.Of("auth", y.Word("sha", "sha224", "sha256", "sha384", "sha512"), "sha256",
			"Authentication of SNMP version 3.",
			func(c *power.Config, x string) { c.Auth = x }),
		y.Of("privacy", y.Word("aes", "aes192", "aes256", "none"), "aes",
			"Encryption of SNMP version 3.",
			func(c *power.Config, x string) { c.Privacy = x }),
		y.Of("pdu", y.Integer(1, 65535), "1",
			"Number of the unit in a cascade.",
			func(c *power.Config, x int) { c.PDU = x }),
		y.Of("inlets", y.Integers("an inlet", 1, 65535, maxSensors), "1",
			"Inlets of a Raritan PDU, which are added up: those of all power supplies of the host.",
			func(c *power.Config, x []int) { c.Inlets = x }),
		y.Of("outlets", y.Integers("an outlet", 1, 65535, maxSensors), "none",
			"Outlets of a Raritan PDU, instead of inlets.",
			func(c *power.Config, x []int) { c.Outlets = x }),
		y.Of("model", text("the model of a PDU"), "required with snmp, unless oids is given",
			"SNMP PDU whose OIDs niclane knows: apc.",
			func(c *power.Config, x string) { c.Model = x }),
		y.Of("oids", y.Sections("oid", "a list of OIDs, each with oid and unit", maxSensors, oidKeys,
			func(y.Value) power.OID { return power.OID{} }), "required with snmp, unless model is given",
			"OIDs to read from any other PDU.",
			func(c *power.Config, x []power.OID) { c.OIDs = x }),
	}
}

func oidKeys() []y.Key[power.OID] {
	return []y.Key[power.OID]{
		y.Of("oid", line("numbers as in .1.3.6.1.4.1.318.1.1.26.4.3.1.5.1", 256), "required",
			"OID of one instance, in numbers.",
			func(o *power.OID, x string) { o.OID = x }),
		y.Of("unit", y.Word("W", "kW", "J", "Wh", "kWh"), "required",
			"Unit of the value. Power is added up, and so is energy.",
			func(o *power.OID, x string) { o.Unit = x }),
		y.Of("scale", y.Number(1e-9, 1e9), "1",
			"Value of one count: 0.1 if the agent reports tenths.",
			func(o *power.OID, x float64) { o.Scale = x }),
	}
}

// snmpVersion returns a Kind (type of value): an SNMP version. In the file it may be a YAML number
// or a string.
func snmpVersion() y.Kind[string] {
	k := y.Word("3", "2c")
	k.Schema = y.Schema{"enum": []any{"3", "2c", 3}}
	return k
}

func powerSources() y.Kind[[]power.Config] {
	one := y.Nested("power", "a mapping of the keys of a power source: source, ...", powerKeys,
		func() power.Config { return power.Config{} })
	return y.OneOrList(one, 8)
}

// needPower reports the required keys that power sources lack. sections are those of the file.
func (r *reader) needPower(sections []section, sources []power.Config) {
	for i, c := range sources {
		path := item(r, "power", i)
		r.needOf(sections, "power", path)
		for j := range c.OIDs {
			r.needOf(sections, "oid", fmt.Sprintf("%s.oids[%d]", path, j))
		}
	}
}

// checkPower checks the keys of each power source against each other. Package power knows which
// keys a source can have.
func (r *reader) checkPower(all []power.Config) {
	for i, c := range all {
		path := item(r, "power", i)
		if !r.fine(path) || c.Source == "" {
			continue
		}
		for _, p := range c.Problems() {
			at := path
			if p.Key != "" {
				at += "." + p.Key
			}
			r.Failf(at, "%s", p.Message)
		}
		if c.Source == power.None && len(all) > 1 {
			r.Failf(path+".source", "found none beside other sources, want it alone")
		}
	}
}

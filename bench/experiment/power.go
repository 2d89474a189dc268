// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	"github.com/niclane/niclane/bench/power"
	y "github.com/niclane/niclane/internal/strictyaml"
)

// maxSensors of a source; package power has it too.
const maxSensors = 12

func powerKeys() []y.Key[power.Config] {
	text := func(what string) y.Kind[string] { return line(what, 1024) }
	return []y.Key[power.Config]{
		y.Of("source", y.Word(power.Sources...), "has to be given",
			"RAPL counters of processors and memory, hwmon sensors, a BMC by IPMI DCMI or by Redfish, a Raritan PDU "+
				"or another one over SNMP, or none, which the result says.",
			func(c *power.Config, x string) { c.Source = x }),
		y.Of("interval", y.Duration(time.Millisecond, time.Minute), "1s",
			"Between readings; over a network at least 10ms.",
			func(c *power.Config, x int64) { c.Interval = x }),
		y.Of("timeout", y.Duration(time.Millisecond, time.Minute), "2s",
			"Of one exchange with the source.",
			func(c *power.Config, x int64) { c.Timeout = x }),
		y.Of("update-interval", y.Duration(time.Microsecond, time.Hour), "what the sensor says or its readings show",
			"How often the sensor has a new value, by its data sheet.",
			func(c *power.Config, x int64) { c.UpdateInterval = x }),
		y.Of("accuracy", y.Share(1, 499), "not known, which the result says",
			"How far a reading may be off, by the data sheet.",
			func(c *power.Config, x int) { c.AccuracyPercent = float64(x) / 10 }),
		y.Of("domains", y.OneOrList(y.Word("package", "dram", "psys", "core", "uncore"), 5),
			"package and, where there is one, dram",
			"Domains of rapl that are added up.",
			func(c *power.Config, x []string) { c.Domains = x }),
		y.Of("chip", text("the name of a chip"), "has to be given with hwmon",
			"Chip of hwmon by its name, or hwmonN where several have it.",
			func(c *power.Config, x string) { c.Chip = x }),
		y.Of("sensors", y.OneOrList(text("powerN_input, powerN_average or energyN_input"), maxSensors),
			"has to be given with hwmon",
			"Sensors of the chip that are added up.",
			func(c *power.Config, x []string) { c.Sensors = x }),
		y.Of("address", text("HOST or HOST:PORT"), "has to be given with a BMC or PDU",
			"Where the BMC (ipmi) or PDU is.",
			func(c *power.Config, x string) { c.Address = x }),
		y.Of("device", text("/dev/ipmiN"), "none",
			"Device of ipmi on the SUT, in the place of address and credentials.",
			func(c *power.Config, x string) { c.Device = x }),
		y.Of("url", text("https://HOST"), "has to be given with redfish",
			"Where the BMC is.",
			func(c *power.Config, x string) { c.URL = x }),
		y.Of("credentials", text("the absolute path of a file, or env:PREFIX"), "has to be given over a network",
			"A file of lines `user=`, `password=`, `privacyPassword=`, `community=` that only its owner can read, "+
				"or the beginning of the names of environment variables.",
			func(c *power.Config, x string) { c.Credentials = x }),
		y.Of("cipher-suite", y.Integer(3, 17), "17",
			"Of ipmi: 3 or 17.",
			func(c *power.Config, x int) { c.CipherSuite = x }),
		y.Of("privilege", y.Word("user", "operator", "administrator"), "user",
			"What ipmi asks for; more only where a BMC wants it.",
			func(c *power.Config, x string) { c.Privilege = x }),
		y.Of("ca-file", text("the absolute path of a PEM file"), "the system's",
			"Who vouches for the certificate of redfish.",
			func(c *power.Config, x string) { c.CAFile = x }),
		y.Of("skip-verify", y.Boolean(), "off",
			"Any certificate will do; the result carries a warning.",
			func(c *power.Config, x bool) { c.SkipVerify = x }),
		y.Of("chassis", y.OneOrList(text("the Id of a chassis"), maxSensors), "the only one that reports power",
			"Chassis of redfish that are added up.",
			func(c *power.Config, x []string) { c.Chassis = x }),
		y.Of("version", snmpVersion(), "3",
			"Of SNMP; 2c protects nothing.",
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
			"Inlets of a Raritan PDU that are added up: those of all power supplies of the host.",
			func(c *power.Config, x []int) { c.Inlets = x }),
		y.Of("outlets", y.Integers("an outlet", 1, 65535, maxSensors), "none",
			"Outlets of it, in the place of inlets.",
			func(c *power.Config, x []int) { c.Outlets = x }),
		y.Of("model", text("the model of a PDU"), "has to be given with snmp, or oids",
			"PDU of snmp whose OIDs are known: apc.",
			func(c *power.Config, x string) { c.Model = x }),
		y.Of("oids", y.Sections("oid", "a list of OIDs, each with oid and unit", maxSensors, oidKeys,
			func(y.Value) power.OID { return power.OID{} }), "has to be given with snmp, or model",
			"What is read of any other PDU.",
			func(c *power.Config, x []power.OID) { c.OIDs = x }),
	}
}

func oidKeys() []y.Key[power.OID] {
	return []y.Key[power.OID]{
		y.Of("oid", line("numbers as in .1.3.6.1.4.1.318.1.1.26.4.3.1.5.1", 256), "has to be given",
			"OID of one instance, in numbers.",
			func(o *power.OID, x string) { o.OID = x }),
		y.Of("unit", y.Word("W", "kW", "J", "Wh", "kWh"), "has to be given",
			"What is counted. Power is added up, and so is energy.",
			func(o *power.OID, x string) { o.Unit = x }),
		y.Of("scale", y.Number(1e-9, 1e9), "1",
			"What one count stands for: 0.1 where the agent reports tenths.",
			func(o *power.OID, x float64) { o.Scale = x }),
	}
}

// snmpVersion may be written as the number that it looks like.
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

// checkPower holds keys of a source against each other: package power knows
// which mean something.
func (r *reader) checkPower() {
	for i, c := range r.e.Power {
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
		if c.Source == power.None && len(r.e.Power) > 1 {
			r.Failf(path+".source", "found none beside other sources, want it alone")
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package power

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigListsAllMistakes(t *testing.T) {
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{Source: "solar"}, []string{`source "solar": want one of rapl, hwmon, ipmi, redfish, raritan, snmp, none`}},
		{Config{Source: None, Interval: 1e9}, []string{"interval: not a key of source none"}},
		{Config{Source: RAPL, Address: "10.0.0.1", Domains: []string{"package", "psys", "gpu", "package"}, Interval: 1,
			AccuracyPercent: 60}, []string{
			"address: not a key of source rapl, only of ipmi, raritan, snmp", `domains[2] "gpu": want package`,
			`domains[3] "package": named twice`,
			"psys contains package, which would count twice", "interval 1ns: want 1ms to",
			"accuracy 60%: want 0% to 50%"}},
		{Config{Source: Hwmon, Chip: "../x", Sensors: []string{"power1_input", "energy1_input", "power1_average",
			"temp1_input", "power1_input"}}, []string{
			`chip "../x"`, `sensors[1] "energy1_input": power and energy cannot be added up`,
			`sensors[2] "power1_average": the same channel twice`, `sensors[3] "temp1_input": want powerN_input`,
			`sensors[4] "power1_input": named twice`}},
		{Config{Source: IPMI}, []string{"address, device: want one of them"}},
		{Config{Source: IPMI, Device: "/dev/sda", CipherSuite: 3, Privilege: "user", Credentials: "/x"},
			[]string{`device "/dev/sda": want /dev/ipmiN`, "cipher-suite: /dev/sda has none",
				"privilege: /dev/sda has none", "credentials: /dev/sda needs none"}},
		{Config{Source: IPMI, Address: "a b:99999", CipherSuite: 1, Privilege: "root", Credentials: simSecret},
			[]string{`address "a b:99999"`, "credentials: want the absolute path", "cipher-suite 1: want 3 or 17",
				`privilege "root": want user`}},
		{Config{Source: Redfish, URL: "https://u:" + simSecret + "@bmc", Credentials: "env:lower",
			Chassis: []string{"../1", "2", "2"}, CAFile: "ca.pem", SkipVerify: true}, []string{
			"url: holds a user or password", `"env:lower": want env:PREFIX`, `chassis[0] "../1"`,
			`chassis[2] "2": named twice`, `ca-file "ca.pem": want an absolute path`, "ca-file, skip-verify"}},
		{Config{Source: Redfish, URL: "http://bmc", Credentials: "/c"},
			[]string{`url "http://bmc": want https://HOST`}},
		{Config{Source: Raritan, Address: "pdu", Credentials: "/c", Inlets: []int{0, 1, 1}, Outlets: []int{1},
			Auth: "md5", Privacy: "des", Model: "apc"}, []string{
			"model: not a key of source raritan, only of snmp", "inlets, outlets: an inlet includes what its outlets draw",
			"inlets[0] 0: want 1 to 65535", "inlets[2] 1: named twice", `auth "md5": want sha`,
			`privacy "des": want aes`}},
		{Config{Source: SNMP, Address: "pdu", Credentials: "/c", Version: "2c", Privacy: "aes"},
			[]string{"model, oids: want one of them", "auth, privacy: SNMP version 2c has neither"}},
		{Config{Source: SNMP, Address: "pdu", Credentials: "/c", Version: "1", PDU: 1,
			OIDs: []OID{{OID: "1.3.6.1.4.1.1", Unit: "VA", Scale: -1}, {OID: ".1.3.6.1.4.1.1", Unit: "W"},
				{OID: "iso.3", Unit: "W"}}}, []string{
			`version "1": want 3 or 2c`, "pdu: want none with oids, which name their instance",
			`oids[0].unit "VA": want W or kW`,
			"oids[0].scale -1", `oids[1].oid ".1.3.6.1.4.1.1": named twice`, `oids[2].oid "iso.3": want numbers`}},
		{Config{Source: Hwmon, Chip: "x"}, []string{"sensors: 0 named, want 1 to 12"}},
		{Config{Source: Redfish, URL: "https://bmc\x7f", Credentials: "/c", Chassis: someIDs(13)},
			[]string{"url: not a URL", "chassis: 13 named, want at most 12"}},
		{Config{Source: Raritan, Address: "pdu", Credentials: "/c", PDU: -1, Outlets: upTo(13)},
			[]string{"pdu -1: want 1 to 65535", "outlets: 13 named, want at most 12"}},
		{Config{Source: SNMP, Address: "pdu", Credentials: "/c", Model: "acme"}, []string{`model "acme": want apc`}},
		{Config{Source: SNMP, Address: "pdu", Credentials: "/c", OIDs: oids(13)},
			[]string{"oids: 13 named, want at most 12"}},
	} {
		err := tt.c.Validate()
		if err == nil {
			t.Errorf("%+v: no error", tt.c)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %q", tt.c.Source, err, want)
			}
		}
		if n := len(strings.Split(err.Error(), "\n")); n != len(tt.want) {
			t.Errorf("%s: %d mistakes, want %d: %v", tt.c.Source, n, len(tt.want), err)
		}
		if strings.Contains(err.Error(), simSecret) {
			t.Errorf("a secret is in %q", err)
		}
	}
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i+1)
	}
	return out
}

func someIDs(n int) (out []string) {
	for _, i := range upTo(n) {
		out = append(out, fmt.Sprint("chassis", i))
	}
	return out
}

func oids(n int) (out []OID) {
	for _, i := range upTo(n) {
		out = append(out, OID{OID: fmt.Sprint(".1.3.6.1.4.1.", i), Unit: "W"})
	}
	return out
}

// TestOpenRefuses checks that Open reports errors in the files that a Config names.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "user=u\npassword=12345678\n")
	for want, c := range map[string]Config{
		"IPMI users have at most 16 bytes, passwords 20": {Source: IPMI, Address: "bmc",
			Credentials: file("long", "user=u\npassword="+strings.Repeat("x", 21)+"\n")},
		"password shorter than the 8 bytes of SNMPv3": {Source: Raritan, Address: "pdu",
			Credentials: file("short", "user=u\npassword=1234567\n")},
		"community longer than 127 bytes": {Source: Raritan, Address: "pdu", Version: "2c",
			Credentials: file("community", "community="+strings.Repeat("x", 128)+"\n")},
		"ca-file: open " + dir + "/none": {Source: Redfish, URL: "https://bmc", Credentials: good,
			CAFile: filepath.Join(dir, "none")},
		"good: no certificate in PEM": {Source: Redfish, URL: "https://bmc", Credentials: good,
			CAFile: good},
	} {
		_, err := Open(c)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "power: "+c.Source+": ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	for _, c := range []Config{
		{Source: None},
		{Source: RAPL},
		{Source: Hwmon, Chip: "power_meter", Sensors: []string{"power1_average"}},
		{Source: IPMI, Device: "/dev/ipmi0"},
		{Source: IPMI, Address: "bmc.example", Credentials: "env:BMC"},
		{Source: IPMI, Address: "[fd00::1]:623", Credentials: "env:BMC"},
		{Source: Redfish, URL: "https://bmc.example:8443/", Credentials: "/etc/niclane/bmc"},
		{Source: Raritan, Address: "fd00::1", Credentials: "/etc/niclane/pdu", Outlets: []int{7, 8}},
		{Source: SNMP, Address: "10.0.0.1", Model: "apc", Credentials: "/etc/niclane/pdu"},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if c := (Config{Source: Raritan, Address: "fd00::1"}).WithDefaults(); c.Address != "[fd00::1]:161" ||
		c.Inlets[0] != 1 || c.PDU != 1 || c.Version != "3" {
		t.Errorf("%+v", c)
	}
}

func TestNone(t *testing.T) {
	r, err := Measure(t.Context(), open(t, Config{Source: None}), func() error { return nil })
	if err != nil || r.Estimate != nil || r.NotMeasured != "the experiment names no power source" {
		t.Errorf("%v, %+v", err, r)
	}
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), "energyJ") || !strings.Contains(string(text), `"notMeasured"`) {
		t.Errorf("%v, %s", err, text)
	}
}

// TestResultJSON checks that a result is the same after it was written and read.
func TestResultJSON(t *testing.T) {
	in := Result{Duration: 10, Estimate: &Estimate{Method: Counter, Power: Interval{300, 299, 301}}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Result
	if err := json.Unmarshal(text, &out); err != nil || out.Estimate == nil || out.Power != in.Power {
		t.Errorf("%v, %+v from %s", err, out, text)
	}
}

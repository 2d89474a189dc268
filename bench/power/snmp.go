// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosnmp/gosnmp"
)

var authProtocols = map[string]gosnmp.SnmpV3AuthProtocol{
	"sha": gosnmp.SHA, "sha224": gosnmp.SHA224, "sha256": gosnmp.SHA256, "sha384": gosnmp.SHA384,
	"sha512": gosnmp.SHA512,
}

// privProtocols are the encryptions by name. For aes192 and aes256 there are two ways to extend a
// key; this is the way that net-snmp and PDUs use.
var privProtocols = map[string]gosnmp.SnmpV3PrivProtocol{
	"aes": gosnmp.AES, "aes192": gosnmp.AES192, "aes256": gosnmp.AES256, "none": gosnmp.NoPriv,
}

// models are the OIDs of known PDUs. The number of the PDU is appended to each OID.
var models = map[string][]OID{
	// From PowerNet-MIB: rPDU2DeviceStatusPower in hundredths of kW, rPDU2DeviceStatusEnergy in tenths
	// of kWh.
	"apc": {
		{OID: ".1.3.6.1.4.1.318.1.1.26.4.3.1.5", Unit: "kW", Scale: 0.01},
		{OID: ".1.3.6.1.4.1.318.1.1.26.4.3.1.9", Unit: "kWh", Scale: 0.1},
	},
}

func modelNames() []string { return slices.Sorted(maps.Keys(models)) }

const (
	sysDescr = ".1.3.6.1.2.1.1.1.0" // from SNMPv2-MIB

	// pduUpdate is the assumed update interval of a PDU that does not report one.
	pduUpdate = int64(10 * time.Second)
	// raritanUpdate is the update interval of PX2 and PX3, which average over 3 s.
	raritanUpdate = int64(3 * time.Second)
	// maxText limits the length of a device's description, in bytes.
	maxText = 200
	// maxCommunity is the longest community, in bytes: gosnmp writes its length into one byte.
	maxCommunity = 127
)

type snmp struct {
	c       Config
	secrets secrets
}

func openSNMP(c Config) (kind, error) {
	want, optional := []string{community}, []string(nil)
	if c.Version == "3" {
		want, optional = []string{user, password}, []string{privacyPassword}
	}
	s, err := readSecrets(c.Credentials, want, optional)
	if err != nil {
		return nil, err
	}
	if len(s[community]) > maxCommunity {
		return nil, fmt.Errorf("%s: community longer than %d bytes", c.Credentials, maxCommunity)
	}
	// RFC 3414, 11.2, requires a password of at least 8 bytes. Agents refuse shorter ones.
	if c.Version == "3" && len(s[password]) < 8 {
		return nil, fmt.Errorf("%s: password shorter than the 8 bytes of SNMPv3", c.Credentials)
	}
	if c.Source == Raritan {
		return raritan{snmp{c, s}}, nil
	}
	return snmp{c, s}, nil
}

func (s snmp) describe() Provenance {
	p := Provenance{Source: s.c.Source, Address: s.c.Address,
		Covers: "what hangs on the PDU's measured lines, losses of the host's power supplies included"}
	switch {
	case s.c.Version == "2c":
		p.Protocol = "SNMPv2c, unprotected"
	case s.c.Privacy == "none":
		p.Protocol = "SNMPv3, " + s.c.Auth
	default:
		p.Protocol = "SNMPv3, " + s.c.Auth + ", " + s.c.Privacy
	}
	return p
}

// agent is a connection to an SNMP agent. Only one goroutine may use it.
type agent struct {
	g       *gosnmp.GoSNMP
	secrets secrets
}

func (s snmp) connect(ctx context.Context) (*agent, error) {
	host, port, err := net.SplitHostPort(s.c.Address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	g := &gosnmp.GoSNMP{
		Target: host, Port: uint16(n), Transport: "udp", Version: gosnmp.Version2c,
		Community: s.secrets[community], Context: ctx,
		Timeout: time.Duration(s.c.Timeout), Retries: 1, MaxOids: gosnmp.MaxOids,
	}
	if s.c.Version == "3" {
		usm := &gosnmp.UsmSecurityParameters{
			UserName:                 s.secrets[user],
			AuthenticationProtocol:   authProtocols[s.c.Auth],
			AuthenticationPassphrase: s.secrets[password],
			PrivacyProtocol:          privProtocols[s.c.Privacy],
		}
		g.Version, g.SecurityModel, g.SecurityParameters = gosnmp.Version3, gosnmp.UserSecurityModel, usm
		g.MsgFlags = gosnmp.AuthNoPriv
		if s.c.Privacy != "none" {
			g.MsgFlags = gosnmp.AuthPriv
			if usm.PrivacyPassphrase = s.secrets[privacyPassword]; usm.PrivacyPassphrase == "" {
				usm.PrivacyPassphrase = s.secrets[password]
			}
		}
	}
	if err := g.Connect(); err != nil {
		return nil, s.secrets.hide(err)
	}
	return &agent{g, s.secrets}, nil
}

// get returns the variables of oids, in this order. A variable that the agent does not have is nil.
func (a *agent) get(ctx context.Context, oids []string) (v []*gosnmp.SnmpPDU, err error) {
	// gosnmp's parser may panic on unexpected data. This must not end the run.
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, a.secrets.hide(fmt.Errorf("SNMP response: %v", p))
		}
	}()
	a.g.Context = ctx
	r, err := a.g.Get(oids)
	if err != nil {
		return nil, a.secrets.hide(err)
	}
	if r.Error != gosnmp.NoError {
		at := ""
		if i := int(r.ErrorIndex); i >= 1 && i <= len(oids) {
			at = oids[i-1] + ": "
		}
		return nil, fmt.Errorf("%sthe agent answers %s", at, r.Error)
	}
	if len(r.Variables) != len(oids) {
		return nil, fmt.Errorf("the agent answers %d variables for %d", len(r.Variables), len(oids))
	}
	v = make([]*gosnmp.SnmpPDU, len(oids))
	for i := range r.Variables {
		x := &r.Variables[i]
		if dotted(x.Name) != dotted(oids[i]) {
			return nil, fmt.Errorf("the agent answers %s for %s", x.Name, oids[i])
		}
		switch x.Type {
		case gosnmp.NoSuchObject, gosnmp.NoSuchInstance, gosnmp.EndOfMibView, gosnmp.Null:
		default:
			v[i] = x
		}
	}
	return v, nil
}

// text returns a variable that describes the device; "" if the agent does not have it.
func (a *agent) text(ctx context.Context, oid string) string {
	v, err := a.get(ctx, []string{oid})
	if err != nil || v[0] == nil {
		return ""
	}
	b, ok := v[0].Value.([]byte)
	if !ok {
		return ""
	}
	return printable(string(b))
}

// printable replaces characters that a terminal or a report cannot show.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

func (a *agent) close() error { return a.g.Close() }

// number returns the value of a variable. It refuses a type that is not numeric.
func number(oid string, v *gosnmp.SnmpPDU) (float64, error) {
	if v == nil {
		return 0, fmt.Errorf("the agent has no %s", oid)
	}
	var x float64
	switch n := v.Value.(type) {
	case int:
		x = float64(n)
	case uint:
		x = float64(n)
	case uint32:
		x = float64(n)
	case uint64:
		x = float64(n)
	case float32:
		x = float64(n)
	case float64:
		x = n
	default:
		return 0, fmt.Errorf("%s: the agent answers %s, want a number", oid, v.Type)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%s: the agent answers %v", oid, x)
	}
	return x, nil
}

// dotted returns an OID with its leading dot.
func dotted(oid string) string { return "." + strings.TrimPrefix(oid, ".") }

// pdu is a device whose values are OIDs of an agent.
type pdu struct {
	a    *agent
	oids []string
	// states has one OID per value, if the agent reports whether values are valid; otherwise it is
	// empty.
	states []string
	// unavailable is the state of a value that is not valid.
	unavailable float64
}

func (p *pdu) read(ctx context.Context) ([]float64, error) {
	vars, err := p.a.get(ctx, append(slices.Clone(p.oids), p.states...))
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(p.oids))
	for i, oid := range p.oids {
		if out[i], err = number(oid, vars[i]); err != nil {
			return nil, err
		}
		// A PDU reports -1 for a quantity that it cannot measure.
		if out[i] < 0 {
			return nil, fmt.Errorf("%s: the agent answers %v: it does not measure this", oid, out[i])
		}
	}
	for i, oid := range p.states {
		state, err := number(oid, vars[len(p.oids)+i])
		if err != nil {
			return nil, err
		}
		if state == p.unavailable {
			return nil, fmt.Errorf("%s: the PDU calls the sensor unavailable", oid)
		}
	}
	return out, nil
}

func (p *pdu) close(context.Context) error { return p.a.close() }

func (s snmp) find(ctx context.Context) (sensorSet, error) {
	oids := s.c.OIDs
	for _, o := range models[s.c.Model] {
		o.OID += "." + strconv.Itoa(s.c.PDU)
		oids = append(oids, o)
	}
	a, err := s.connect(ctx)
	if err != nil {
		return sensorSet{}, err
	}
	f := sensorSet{prov: s.describe()}
	p := &pdu{a: a}
	f.dev = p
	var names []string
	for _, o := range oids {
		names = append(names, dotted(o.OID))
	}
	vars, err := a.get(ctx, names)
	if err != nil {
		return sensorSet{}, errors.Join(err, a.close())
	}
	f.prov.Device = a.text(ctx, sysDescr)
	for i, o := range oids {
		// With Model, the PDU may lack an energy counter or report -1 for it. An OID that the experiment
		// names must exist.
		n, err := number(names[i], vars[i])
		if s.c.Model != "" && (err != nil || n < 0) && len(oids) > 1 && i > 0 {
			f.warnings = append(f.warnings, fmt.Sprintf("%s: this PDU does not count energy", names[i]))
			continue
		}
		if err != nil {
			return sensorSet{}, errors.Join(err, a.close())
		}
		p.oids = append(p.oids, names[i])
		f.gears = append(f.gears, o.gear(names[i], vars[i].Type))
	}
	return f, nil
}

// gear describes the sensor behind an OID. t is the type of its variable.
func (o OID) gear(name string, t gosnmp.Asn1BER) gear {
	scale := o.Scale
	scale = cmp.Or(scale, 1)
	u := units[o.Unit]
	g := gear{Sensor: Sensor{
		Name: name, Path: name, Quantity: Power, Unit: strings.TrimPrefix(fmt.Sprintf("%g %s", scale, o.Unit), "1 "),
		ResolutionFrom: FromSource, UpdateInterval: pduUpdate, UpdateIntervalFrom: FromDefault,
	}, unit: scale * u.si}
	// The resolution is one count of the agent.
	if !u.energy {
		g.ResolutionW = g.unit
		return g
	}
	g.Quantity, g.ResolutionJ = Energy, g.unit
	switch t {
	case gosnmp.Counter32:
		g.wrap = 1 << 32
	case gosnmp.Counter64:
		g.wrap = 1 << 64
	}
	return g
}

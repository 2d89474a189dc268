// SPDX-License-Identifier: Apache-2.0

package power

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
)

const simSecret = "h4rd-to-guess"

// credentials writes a credentials file that only its owner can read.
func credentials(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// until waits until ok returns true. Another goroutine makes the condition true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func open(t *testing.T, c Config) Source {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raritanAgent simulates a PDU with two inlets: 300.5 W and 200.0 W.
func raritanAgent() *snmpAgent {
	a := &snmpAgent{community: simSecret}
	a.set(pdu2Model+"1", gosnmp.OctetString, "PX3-5190R")
	a.set(pdu2Firmware+"1.1.1", gosnmp.OctetString, "3.6.1.5-46192")
	for n, tenths := range []uint32{3005, 2000} {
		row := fmt.Sprintf("1.%d.", n+1)
		for _, s := range []struct {
			kind                string
			unit, digits, value int
		}{{pdu2ActivePower, pdu2Watt, 1, int(tenths)}, {pdu2ActiveEnergy, pdu2WattHour, 0, 123456}} {
			a.set(inletTable.configuration+pdu2Units+row+s.kind, gosnmp.Integer, s.unit)
			a.set(inletTable.configuration+pdu2Digits+row+s.kind, gosnmp.Gauge32, uint32(s.digits))
			a.set(inletTable.configuration+pdu2Resolution+row+s.kind, gosnmp.Gauge32, uint32(1))
			a.set(inletTable.measurements+pdu2State+row+s.kind, gosnmp.Integer, 4)
			a.set(inletTable.measurements+pdu2Value+row+s.kind, gosnmp.Gauge32, uint32(s.value))
		}
	}
	return a
}

// measured measures power during work. There must be an estimate.
func measured(t *testing.T, c Config, work func()) Result {
	t.Helper()
	r, err := Measure(t.Context(), open(t, c), func() error { work(); return nil })
	if err != nil || r.Estimate == nil {
		t.Fatalf("%v, %q, %q", err, r.NotMeasured, r.Warnings)
	}
	return r
}

// refused checks that Measure refuses. The error must contain want, no secret, and none of the
// texts in others.
func refused(t *testing.T, c Config, want string, others ...string) {
	t.Helper()
	_, err := Measure(t.Context(), open(t, c), func() error { t.Error("the work ran"); return nil })
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	for _, other := range append(others, simSecret) {
		if strings.Contains(text, other) {
			t.Errorf("%q is in %q", other, text)
		}
	}
}

// fast sets short intervals, so that a test sees enough updates in a fraction of a second.
func fast(c Config) Config {
	c.Interval, c.UpdateInterval, c.Timeout = 10e6, 1e6, 20e9
	return c
}

// pduConfig returns a configuration that reads a as a Raritan PDU.
func pduConfig(t *testing.T, a *snmpAgent) Config {
	t.Helper()
	return fast(Config{Source: Raritan, Address: startAgent(t, a), Version: "2c",
		Credentials: credentials(t, "community="+simSecret)})
}

// gauged measures an agent that has a gauge of power and a counter of energy.
func gauged(t *testing.T, a *snmpAgent, watts, joules string) Result {
	t.Helper()
	c := fast(Config{Source: SNMP, Address: startAgent(t, a), Version: "2c",
		Credentials: credentials(t, "community="+simSecret),
		OIDs:        []OID{{OID: watts, Unit: "W"}, {OID: joules, Unit: "J"}}})
	return measured(t, c, func() { until(t, "readings", func() bool { return a.requests() > 20 }) })
}

func TestRaritanAddsInlets(t *testing.T) {
	a := raritanAgent()
	c := pduConfig(t, a)
	c.Inlets, c.AccuracyPercent = []int{1, 2}, 1
	begin := a.requests()
	r := measured(t, c, func() { until(t, "15 readings", func() bool { return a.requests() > begin+25 }) })
	if r.Method != Samples || math.Abs(r.Power.Value-500.5) > 1e-6 {
		t.Errorf("%s: %v W, want 500.5", r.Method, r.Power)
	}
	// The half-width is the resolution, 0.1 W for each inlet, plus the accuracy, 1 %. The power did
	// not change.
	if want := 0.2 + 5.005; math.Abs(r.Power.High-r.Power.Value-want) > 1e-6 {
		t.Errorf("half-width %v W, want %v", r.Power.High-r.Power.Value, want)
	}
	if p := r.Provenance; p.Device != "PX3-5190R" || p.Firmware != "3.6.1.5-46192" || len(p.Sensors) != 4 ||
		p.Sensors[0].Unit != "0.1 W" || p.Sensors[0].ResolutionW != 0.1 ||
		p.Sensors[1].Path != ".1.3.6.1.4.1.13742.6.5.2.3.1.4.1.2.5" ||
		p.Sensors[2].Quantity != Energy || p.Sensors[2].ResolutionJ != 3600 {
		t.Errorf("provenance %+v", p)
	}
	// The counters of Wh did not move. So there is no cross-check, and the result says so.
	if r.CrossCheck != nil || !strings.Contains(strings.Join(r.Warnings, "\n"),
		"no cross-check: inlet 1 active energy: the counter did not move") {
		t.Errorf("cross-check %v, warnings %q", r.CrossCheck, r.Warnings)
	}
	if strings.Contains(fmt.Sprintf("%+v", r), simSecret) {
		t.Error("the community is in the result")
	}
}

func TestRaritanRefuses(t *testing.T) {
	value := inletTable.measurements + pdu2Value + "1.1." + pdu2ActivePower
	for _, tt := range []struct {
		name, want string
		change     func(a *snmpAgent)
	}{
		{"wrong unit", "unit 2, want 3 (W)", func(a *snmpAgent) {
			a.set(inletTable.configuration+pdu2Units+"1.1."+pdu2ActivePower, gosnmp.Integer, 2)
		}},
		{"absurd digits", "12 decimal digits, want 0 to 9", func(a *snmpAgent) {
			a.set(inletTable.configuration+pdu2Digits+"1.1."+pdu2ActivePower, gosnmp.Gauge32, uint32(12))
		}},
		{"no such inlet", "inlet 1: the agent has no " + inletTable.configuration + pdu2Units, func(a *snmpAgent) {
			a.set(inletTable.configuration+pdu2Units+"1.1."+pdu2ActivePower, 0, nil)
		}},
		{"text for a number", "want a number", func(a *snmpAgent) { a.set(value, gosnmp.OctetString, "300") }},
		{"unavailable", "the PDU calls the sensor unavailable", func(a *snmpAgent) {
			a.set(inletTable.measurements+pdu2State+"1.1."+pdu2ActivePower, gosnmp.Integer, -1)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := raritanAgent()
			tt.change(a)
			ran := false
			r, err := Measure(t.Context(), open(t, pduConfig(t, a)), func() error { ran = true; return nil })
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if ran || r.Estimate != nil || r.NotMeasured == "" {
				t.Errorf("ran %v, result %+v", ran, r)
			}
		})
	}
}

func TestSNMPv3(t *testing.T) {
	a := &snmpAgent{usm: &gosnmp.UsmSecurityParameters{
		UserName:               "meter",
		AuthenticationProtocol: gosnmp.SHA256, AuthenticationPassphrase: simSecret,
		PrivacyProtocol: gosnmp.AES, PrivacyPassphrase: simSecret + "2",
	}}
	a.set(sysDescr, gosnmp.OctetString, "APC Web/SNMP\x1b[31m\r\nPF:v7.0.8")
	a.set(".1.3.6.1.4.1.318.1.1.26.4.3.1.5.1", gosnmp.Gauge32, uint32(62))
	a.set(".1.3.6.1.4.1.318.1.1.26.4.3.1.9.1", gosnmp.Gauge32, uint32(4711))
	addr := startAgent(t, a)
	c := fast(Config{Source: SNMP, Model: "apc", Address: addr,
		Credentials: credentials(t, "user=meter", "password="+simSecret, "privacyPassword="+simSecret+"2")})
	begin := a.requests()
	r := measured(t, c, func() { until(t, "readings", func() bool { return a.requests() > begin+15 }) })
	// The agent counts hundredths of kW: 62 means 620 W, with a resolution of 10 W.
	if math.Abs(r.Power.Value-620) > 1e-6 || math.Abs(r.Power.Low-610) > 1e-6 {
		t.Errorf("power %v, want 620 ± 10", r.Power)
	}
	if r.Provenance.Device != "APC Web/SNMP [31m PF:v7.0.8" || r.Provenance.Protocol != "SNMPv3, sha256, aes" {
		t.Errorf("device %q, protocol %q", r.Provenance.Device, r.Provenance.Protocol)
	}

	c.Credentials, c.Timeout = credentials(t, "user=meter", "password=not-"+simSecret), 50e6
	_, err := Measure(t.Context(), open(t, c), func() error { return nil })
	if err == nil || strings.Contains(err.Error(), simSecret) ||
		strings.Contains(fmt.Sprintf("%#v %+v", err, err), simSecret) {
		t.Errorf("wrong password: %v", err)
	}
}

// TestPDUGoesAway checks that the work's result is kept if the PDU stops answering.
func TestPDUGoesAway(t *testing.T) {
	a := raritanAgent()
	c := pduConfig(t, a)
	c.Timeout = 20e6
	fine := errors.New("the work's own")
	r, err := Measure(t.Context(), open(t, c), func() error {
		a.mu.Lock()
		a.mangle = func([]byte) []byte { return nil }
		now := a.gets
		a.mu.Unlock()
		until(t, "three requests more", func() bool { return a.requests() > now+3 })
		return fine
	})
	if !errors.Is(err, fine) {
		t.Errorf("error %v, want the work's own", err)
	}
	if r.Estimate != nil || r.Missed == 0 || !strings.Contains(r.NotMeasured,
		"readings failed, the first with: request timeout") {
		t.Errorf("estimate %v, missed %d, not measured %q", r.Estimate, r.Missed, r.NotMeasured)
	}
}

// TestPDUGarbage checks that any garbage gives an error in limited time.
func TestPDUGarbage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mangles := map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return []byte{} },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"truncated": func(b []byte) []byte { return b[:rng.IntN(len(b))] },
		"flipped": func(b []byte) []byte {
			b = bytes.Clone(b)
			for range 1 + rng.IntN(8) {
				b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
			}
			return b
		},
		"large": func([]byte) []byte { return bytes.Repeat([]byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff}, 10000) },
		"other OID": func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte{0x05, 0x02, 0x03, 0x01, 0x04}, []byte{0x05, 0x02, 0x03, 0x01, 0x05})
		},
	}
	for name, mangle := range mangles {
		t.Run(name, func(t *testing.T) {
			a := raritanAgent()
			a.mangle = mangle
			c := Config{Source: Raritan, Address: startAgent(t, a), Version: "2c",
				Credentials: credentials(t, "community="+simSecret), Timeout: 5e6}
			src := open(t, c)
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				m, err := src.Start(ctx)
				if err == nil { // the flipped bits changed nothing that matters
					m.Stop(ctx)
				} else if strings.Contains(err.Error(), simSecret) {
					t.Errorf("the community is in %q", err)
				}
				if ctx.Err() != nil {
					t.Error("still busy after 10 s")
				}
				cancel()
				if name != "flipped" && name != "truncated" && err == nil {
					t.Errorf("no error")
				}
			}
		})
	}
}

func TestGenericCounter(t *testing.T) {
	a := &snmpAgent{community: simSecret}
	const watts, joules = ".1.3.6.1.4.1.99999.1.1", ".1.3.6.1.4.1.99999.1.2"
	a.set(watts, gosnmp.Gauge32, uint32(4000))
	start := time.Now()
	// The counter counts J at 4 kW. It is a Counter32 that is about to wrap.
	count := func(_ int, a *snmpAgent) {
		a.set(joules, gosnmp.Counter32, uint32(1<<32-40+uint64(4000*time.Since(start).Seconds())))
	}
	count(0, a)
	a.change = count
	r := gauged(t, a, watts, strings.TrimPrefix(joules, "."))
	if r.CrossCheck == nil {
		t.Fatal(r.Warnings)
	}
	if r.Wraps != 1 {
		t.Errorf("%d wraps, want 1", r.Wraps)
	}
	for _, e := range []*Estimate{r.Estimate, r.CrossCheck} {
		if e.Power.Low > 4000 || e.Power.High < 4000 {
			t.Errorf("%s: %v W, want 4000 inside", e.Method, e.Power)
		}
	}
	if w := strings.Join(r.Warnings, "\n"); strings.Contains(w, "contradicts") {
		t.Error(w)
	}
}

// TestContradiction checks that there is a warning if counters and gauges of one PDU disagree.
func TestContradiction(t *testing.T) {
	const watts, joules = ".1.3.6.1.4.1.99999.1.1", ".1.3.6.1.4.1.99999.1.2"
	for _, tt := range []struct {
		name         string
		gauge, count float64 // both in W
	}{{"counter says more", 400, 8000}, {"counter says less", 8000, 4000}} {
		t.Run(tt.name, func(t *testing.T) {
			a := &snmpAgent{community: simSecret}
			a.set(watts, gosnmp.Gauge32, uint32(tt.gauge))
			start := time.Now()
			a.change = func(_ int, a *snmpAgent) {
				a.set(joules, gosnmp.Counter64, uint64(tt.count*time.Since(start).Seconds()))
			}
			r := gauged(t, a, watts, joules)
			if w := strings.Join(r.Warnings, "\n"); !strings.Contains(w, "the source contradicts itself") {
				t.Errorf("warnings %q, %v, %v", w, r.Estimate, r.CrossCheck)
			}
		})
	}
}

// TestInterrupted checks that an interrupted measurement has a result for the time until the
// interruption.
func TestInterrupted(t *testing.T) {
	a := raritanAgent()
	src := open(t, pduConfig(t, a))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	r, err := Measure(ctx, src, func() error {
		begin := a.requests()
		until(t, "readings", func() bool { return a.requests() > begin+15 })
		cancel(stop)
		return context.Cause(ctx)
	})
	if !errors.Is(err, stop) || r.Estimate == nil || r.Missed != 0 || math.Abs(r.Power.Value-300.5) > 1e-6 {
		t.Errorf("%v, %q, missed %d: %s", err, r.NotMeasured, r.Missed, r.FirstError)
	}
}

// TestWorkPanics checks that no reader runs on after the work has panicked.
func TestWorkPanics(t *testing.T) {
	s, c := startRedfish(t, newBMC())
	src := open(t, c)
	func() {
		defer func() { recover() }()
		Measure(t.Context(), src, func() error { panic("the work") })
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions != 0 {
		t.Errorf("%d sessions left open", s.sessions)
	}
}

// TestWideInterval checks that a warning names the window that would be long enough.
func TestWideInterval(t *testing.T) {
	r := Result{Duration: 30 * second, Estimate: &Estimate{Method: Counter, Energy: Interval{Value: 9000},
		Uncertainty: Uncertainty{EdgesJ: 900}}}
	r.warnWide()
	if r.Needed != 60*second || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0],
		"±10.0 % wide: ±5 % takes a window of about 1m0s") {
		t.Errorf("%v, %q", time.Duration(r.Needed), r.Warnings)
	}
	r = Result{Duration: 30 * second, Estimate: &Estimate{Method: Samples, Energy: Interval{Value: 3000},
		Uncertainty: Uncertainty{ResolutionJ: 300}}}
	r.warnWide()
	if r.Needed != 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "±10.0 % would remain in any window") {
		t.Errorf("%v, %q", time.Duration(r.Needed), r.Warnings)
	}
}

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
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
)

func ipmiConfig(t *testing.T, addr string, suite int) Config {
	return fast(Config{Source: IPMI, Address: addr, CipherSuite: suite,
		Credentials: credentials(t, "user="+simUser, "password="+simSecret)})
}

func TestIPMI(t *testing.T) {
	for _, suite := range []int{3, 17} {
		t.Run(fmt.Sprintf("cipher suite %d", suite), func(t *testing.T) {
			s := &simBMC{watts: 412, active: true}
			c := ipmiConfig(t, startBMC(t, s, types.CipherSuiteID(suite)), suite)
			r := measured(t, c, func() { until(t, "15 readings", func() bool { return s.count() > 15 }) })
			if math.Abs(r.Power.Value-412) > 1e-6 || math.Abs(r.Power.High-413) > 1e-6 ||
				math.Abs(r.Power.Low-411) > 1e-6 {
				t.Errorf("%v W, want 412 ± 1", r.Power)
			}
			if p := r.Provenance; p.Firmware != "2.85" || p.Protocol != fmt.Sprintf("RMCP+, cipher suite %d", suite) ||
				!strings.Contains(p.Device, "manufacturer 674") {
				t.Errorf("provenance %+v", p)
			}
			// The session must be closed, because a BMC allows only a few.
			until(t, "the session's end", func() bool { return s.b.Sessions.Count() == 0 })
		})
	}
}

func TestIPMIRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		bmc        *simBMC
		edit       func(*testing.T, *Config)
	}{
		{"inactive", "does not measure power at the moment", &simBMC{watts: 400}, nil},
		{"zero", "reports 0 W", &simBMC{active: true}, nil},
		{"no DCMI", "not every BMC has it", &simBMC{active: true, code: types.CompletionCode(0xc1)}, nil},
		{"privilege", `the privilege "user" is too low for this BMC`,
			&simBMC{active: true, code: insufficientPrivilege}, nil},
		{"wrong password", "cipher suite", &simBMC{watts: 400, active: true}, func(t *testing.T, c *Config) {
			c.Credentials = credentials(t, "user="+simUser, "password=not-"+simSecret)
		}},
		{"other suite", "cipher suite", &simBMC{watts: 400, active: true},
			func(t *testing.T, c *Config) { c.CipherSuite = 3 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := ipmiConfig(t, startBMC(t, tt.bmc, types.CipherSuiteID17), 17)
			c.Timeout = 100e6
			if tt.edit != nil {
				tt.edit(t, &c)
			}
			refused(t, c, tt.want, "\n")
			until(t, "the session's end", func() bool {
				return tt.bmc.b.Sessions.Count() == 0 || tt.name == "wrong password" || tt.name == "other suite"
			})
		})
	}
}

// TestIPMIGarbage checks that a missing BMC is noticed in limited time, and that garbage does not
// end the process. go-ipmi parses packets in its own goroutine, where the caller cannot recover
// from a panic.
func TestIPMIGarbage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for name, mangle := range map[string]func([]byte) []byte{
		"silence":   func([]byte) []byte { return nil },
		"empty":     func([]byte) []byte { return []byte{} },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"header":    func(b []byte) []byte { return b[:min(len(b), 4+rng.IntN(12))] },
		"truncated": func(b []byte) []byte { return b[:rng.IntN(len(b))] },
		"flipped": func(b []byte) []byte {
			b = bytes.Clone(b)
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &simBMC{watts: 400, active: true, mangle: mangle}
			c := ipmiConfig(t, startBMC(t, s, types.CipherSuiteID17), 17)
			c.Timeout = 2e6
			src := open(t, c)
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if m, err := src.Start(ctx); err == nil {
					m.Stop(ctx)
				} else if strings.Contains(err.Error(), simSecret) {
					t.Errorf("the password is in %q", err)
				}
				if ctx.Err() != nil {
					t.Error("still busy after 10 s")
				}
				cancel()
			}
		})
	}
}

func TestIPMIDevice(t *testing.T) {
	const device = "/dev/ipmi9"
	if _, err := os.Stat(device); err == nil {
		t.Skip(device + " is there")
	}
	_, err := open(t, Config{Source: IPMI, Device: device}).Start(t.Context())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), device) {
		t.Errorf("error %v, want that %s does not exist", err, device)
	}
}

// TestIPMIForgery checks that a packet without the session's integrity code never reaches go-ipmi.
// So watts cannot be forged, and a packet that does not decrypt cannot end the process.
func TestIPMIForgery(t *testing.T) {
	s := &simBMC{watts: 412, active: true}
	forged := 0
	s.mangle = func(b []byte) []byte {
		if len(b) > payload20 && b[4] == rmcpPlus && b[5]&0x3f == 0 && s.reads > 3 {
			forged++
			switch b = bytes.Clone(b); forged % 3 {
			case 0:
				b[len(b)-1] ^= 1 // changes the integrity code
			case 1:
				b[payload20+20] ^= 1 // changes a byte that the code protects
			case 2:
				b[5] &^= 0x40 // clears the flag that says that there is a code
			}
		}
		return b
	}
	c := ipmiConfig(t, startBMC(t, s, types.CipherSuiteID17), 17)
	c.Timeout = 20e6
	r, err := Measure(t.Context(), open(t, c), func() error {
		until(t, "ten forgeries", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return forged > 10 })
		return nil
	})
	if err != nil || r.Estimate != nil || r.Missed == 0 || r.Readings > 4 {
		t.Errorf("error %v, readings %d, missed %d, power %v", err, r.Readings, r.Missed, r.Estimate)
	}
}

func FuzzIPMIAccept(f *testing.F) {
	f.Add([]byte{6, 0, 255, 7, 6, 0xc0, 1, 2, 3, 4, 1, 0, 0, 0, 32, 0}, true)
	f.Add([]byte{6, 0, 255, 7, 6, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false)
	f.Add([]byte{6, 0, 255, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16}, false)
	f.Fuzz(func(t *testing.T, b []byte, keys bool) {
		c := &verifiedConn{verifier: newVerifier("u", "p", 17)}
		if keys {
			c.k1, c.k2 = make([]byte, 32), make([]byte, 32)
		}
		if c.accept(b) && keys && b[5] == 0xc0 {
			t.Error("accepted without the key")
		}
	})
}

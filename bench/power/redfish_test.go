// SPDX-License-Identifier: Apache-2.0

package power

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// simRedfish simulates a BMC. It has a service root, sessions, and documents that the test chooses.
type simRedfish struct {
	*httptest.Server
	mu       sync.Mutex
	docs     map[string]any
	sessions int // number of open sessions
	conns    int // number of open connections
	gets     map[string]int
	handle   map[string]http.HandlerFunc
}

const simToken = "t0ken-of-the-session"

type obj = map[string]any

func link(path string) obj { return obj{"@odata.id": path} }

func startRedfish(t *testing.T, docs map[string]any) (*simRedfish, Config) {
	t.Helper()
	s := &simRedfish{docs: docs, gets: map[string]int{}, handle: map[string]http.HandlerFunc{}}
	docs["/redfish/v1/"] = obj{
		"@odata.id": "/redfish/v1/", "Id": "RootService", "RedfishVersion": "1.15.0",
		"Chassis": link("/redfish/v1/Chassis"), "SessionService": link("/redfish/v1/SessionService"),
		"Links": obj{"Sessions": link("/redfish/v1/SessionService/Sessions")},
	}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state {
		case http.StateNew:
			s.conns++
		case http.StateClosed:
			s.conns--
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o644); err != nil {
		t.Fatal(err)
	}
	return s, fast(Config{Source: Redfish, URL: s.URL, CAFile: ca,
		Credentials: credentials(t, "user="+simUser, "password="+simSecret)})
}

func (s *simRedfish) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets[r.URL.Path]++
	if h := s.handle[r.URL.Path]; h != nil {
		h(w, r)
		return
	}
	const sessions = "/redfish/v1/SessionService/Sessions"
	switch {
	case r.Method == http.MethodPost && r.URL.Path == sessions:
		var body struct{ UserName, Password string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.UserName != simUser ||
			body.Password != simSecret {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"code":"Base.1.0","message":"no such user %s with password %s\u001b[2J"}}`,
				body.UserName, body.Password)
			return
		}
		s.sessions++
		w.Header().Set("X-Auth-Token", simToken)
		w.Header().Set("Location", sessions+"/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{}`)
		return
	case r.URL.Path != "/redfish/v1/" && r.Header.Get("X-Auth-Token") != simToken:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.Method == http.MethodDelete && r.URL.Path == sessions+"/1":
		s.sessions--
		w.WriteHeader(http.StatusNoContent)
		return
	}
	doc, ok := s.docs[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":"Base.1.0","message":"not found"}}`)
		return
	}
	json.NewEncoder(w).Encode(doc)
}

func (s *simRedfish) got(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets[path]
}

func chassis(id string, extra obj) obj {
	c := obj{"@odata.id": "/redfish/v1/Chassis/" + id, "Id": id, "Manufacturer": "Maker", "Model": "M1"}
	for k, v := range extra {
		c[k] = v
	}
	return c
}

func collection(path string, ids ...string) obj {
	var members []obj
	for _, id := range ids {
		members = append(members, link(path+"/"+id))
	}
	return obj{"@odata.id": path, "Members": members, "Members@odata.count": len(ids)}
}

// newBMC returns documents of a BMC with EnvironmentMetrics, which report power and energy, and
// with a Sensor.
func newBMC() map[string]any {
	const c = "/redfish/v1/Chassis/1"
	return map[string]any{
		"/redfish/v1/Chassis": collection("/redfish/v1/Chassis", "1", "Fans"),
		c: chassis("1", obj{
			"EnvironmentMetrics": link(c + "/EnvironmentMetrics"),
			"Links":              obj{"ManagedBy": []obj{link("/redfish/v1/Managers/BMC")}},
		}),
		"/redfish/v1/Chassis/Fans": chassis("Fans", nil),
		"/redfish/v1/Managers/BMC": obj{"@odata.id": "/redfish/v1/Managers/BMC", "Id": "BMC",
			"FirmwareVersion": "7.10.30"},
		c + "/EnvironmentMetrics": obj{"@odata.id": c + "/EnvironmentMetrics", "Id": "EnvironmentMetrics",
			"PowerWatts": obj{"Reading": 351.5, "DataSourceUri": c + "/Sensors/TotalPower"}},
		c + "/Sensors/TotalPower": obj{"@odata.id": c + "/Sensors/TotalPower", "Id": "TotalPower", "Reading": 351.5,
			"SensingInterval": "PT0.5S"},
	}
}

// oldBMC returns documents of a BMC that has only the Power resource.
func oldBMC() map[string]any {
	const c = "/redfish/v1/Chassis/System.Embedded.1"
	return map[string]any{
		"/redfish/v1/Chassis": collection("/redfish/v1/Chassis", "System.Embedded.1"),
		c:                     chassis("System.Embedded.1", obj{"Power": link(c + "/Power")}),
		c + "/Power": obj{"@odata.id": c + "/Power", "Id": "Power", "PowerControl": []obj{
			{"MemberId": "0", "PowerConsumedWatts": 287,
				"PowerMetrics": obj{"AverageConsumedWatts": 250, "IntervalInMin": 60}},
		}},
	}
}

func TestRedfish(t *testing.T) {
	for _, tt := range []struct {
		name    string
		docs    map[string]any
		reading string
		watts   float64
		check   func(p Provenance) bool
	}{
		{"EnvironmentMetrics", newBMC(), "/redfish/v1/Chassis/1/EnvironmentMetrics", 351.5, func(p Provenance) bool {
			return p.Firmware == "7.10.30" && p.Device == "Maker M1" && p.Sensors[0].Name == "PowerWatts"
		}},
		{"Power", oldBMC(), "/redfish/v1/Chassis/System.Embedded.1/Power", 287, func(p Provenance) bool {
			return p.Sensors[0].Path == "/redfish/v1/Chassis/System.Embedded.1/Power#PowerControl/0/PowerConsumedWatts"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := startRedfish(t, tt.docs)
			r := measured(t, c, func() {
				begin := s.got(tt.reading)
				until(t, "15 readings", func() bool { return s.got(tt.reading) > begin+15 })
			})
			if math.Abs(r.Power.Value-tt.watts) > 1e-3 || math.Abs(r.Power.High-tt.watts-1) > 1e-3 {
				t.Errorf("%v W, want %v ± 1", r.Power, tt.watts)
			}
			if !tt.check(r.Provenance) {
				t.Errorf("provenance %+v", r.Provenance)
			}
			if s.sessions != 0 {
				t.Errorf("%d sessions left open", s.sessions)
			}
			until(t, "the connection's end", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.conns == 0 })
			if text, _ := json.Marshal(r); strings.Contains(string(text), simSecret) ||
				strings.Contains(string(text), simToken) {
				t.Error("a credential is in the result")
			}
		})
	}
}

// TestRedfishSensingInterval checks that the interval which the sensor reports determines the least
// length of a window.
func TestRedfishSensingInterval(t *testing.T) {
	_, c := startRedfish(t, newBMC())
	c.UpdateInterval = 0
	r, err := Measure(t.Context(), open(t, c), func() error { return nil })
	if err != nil || r.Estimate != nil || r.Needed != 5e9 || !strings.Contains(r.NotMeasured,
		"one every 500ms, want 10: want a window of at least 5s") {
		t.Errorf("error %v, needed %v, %q", err, time.Duration(r.Needed), r.NotMeasured)
	}
}

func TestRedfishRefuses(t *testing.T) {
	const env = "/redfish/v1/Chassis/1/EnvironmentMetrics"
	for _, tt := range []struct {
		name, want string
		edit       func(t *testing.T, s *simRedfish, c *Config)
	}{
		{"certificate", "ca-file names the authority", func(_ *testing.T, _ *simRedfish, c *Config) { c.CAFile = "" }},
		{"password", "[secret]", func(t *testing.T, _ *simRedfish, c *Config) {
			c.Credentials = credentials(t, "user="+simUser, "password=not-"+simSecret)
		}},
		{"no power", "no chassis reports power", func(_ *testing.T, s *simRedfish, _ *Config) {
			delete(s.docs["/redfish/v1/Chassis/1"].(obj), "EnvironmentMetrics")
		}},
		{"null", "no chassis reports power", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.docs[env] = obj{"@odata.id": env, "PowerWatts": obj{"Reading": nil}}
		}},
		{"negative", "reads -3", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.docs[env] = obj{"@odata.id": env, "PowerWatts": obj{"Reading": -3}}
		}},
		{"two chassis", "chassis 1, Fans all report power", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.docs["/redfish/v1/Chassis/Fans"] = chassis("Fans", obj{"EnvironmentMetrics": link(env)})
		}},
		{"unknown chassis", "chassis 7", func(_ *testing.T, _ *simRedfish, c *Config) { c.Chassis = []string{"7"} }},
		{"chassis without", "chassis Fans: no power reading",
			func(_ *testing.T, _ *simRedfish, c *Config) { c.Chassis = []string{"Fans"} }},
		{"not JSON", "chassis 1", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.handle[env] = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>maintenance") }
		}},
		{"wrong type", "chassis 1", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.docs[env] = obj{"@odata.id": env, "PowerWatts": obj{"Reading": "hot"}}
		}},
		{"endless", "a response of more than 1048576 bytes", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.handle[env] = func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < 40; i++ {
					if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
						return
					}
				}
			}
		}},
		{"slow", "exceeded", func(_ *testing.T, s *simRedfish, c *Config) {
			c.Timeout = 50e6
			s.handle[env] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}},
		{"redirect", "links to a host other than", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.handle[env] = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://127.0.0.1:1/steal", http.StatusFound)
			}
		}},
		{"link elsewhere", "links to a host other than", func(_ *testing.T, s *simRedfish, _ *Config) {
			s.docs["/redfish/v1/Chassis/1"].(obj)["EnvironmentMetrics"] = link("@127.0.0.1:1/steal")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := startRedfish(t, newBMC())
			tt.edit(t, s, &c)
			refused(t, c, tt.want, simToken, "\x1b")
			if s.mu.Lock(); s.sessions != 0 {
				t.Errorf("%d sessions left open", s.sessions)
			}
			s.mu.Unlock()
		})
	}
}

func TestRedfishSkipVerifyWarns(t *testing.T) {
	_, c := startRedfish(t, newBMC())
	c.CAFile, c.SkipVerify = "", true
	r, err := Measure(t.Context(), open(t, c), func() error { return nil })
	if err != nil || !strings.Contains(strings.Join(r.Warnings, "\n"), "was not verified") ||
		r.Provenance.Protocol != "HTTPS, certificate not verified" {
		t.Errorf("error %v, warnings %q, protocol %q", err, r.Warnings, r.Provenance.Protocol)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]int64{
		"PT1S": 1e9, "PT0.25S": 25e7, "PT1M30S": 90e9, "P1DT2H": 93600e9,
		"": 0, "P": 0, "PT": 0, "PT0S": 0, "1S": 0, "PT1S ": 0, "PT-1S": 0, "P1Y": 0,
	} {
		if got, ok := duration(text); got != want || ok != (want > 0) {
			t.Errorf("duration(%q) = %d, %v, want %d", text, got, ok, want)
		}
	}
}

func FuzzDuration(f *testing.F) {
	f.Add("PT1.5S")
	f.Add("P999DT9999H99999M9999999.999999999S")
	f.Fuzz(func(t *testing.T, text string) {
		if ns, ok := duration(text); ok != (ns > 0) || ns < 0 {
			t.Errorf("duration(%q) = %d, %v", text, ns, ok)
		}
	})
}

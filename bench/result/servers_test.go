// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// delivering returns a result of a server that sends gbit Gbit/s in its variant idle, half as much in
// its base off, and receives a tenth of that. Its power is 100 W, of what covers says; "": not measured.
func delivering(sockets int, gbit float64, covers string) *Result {
	r := fixture()
	r.Title = "live"
	r.Experiment.Base, r.Experiment.Goals = "off", nil
	r.Experiment.Hosts = &experiment.Hosts{Clients: make([]experiment.Host, 4)}
	r.Experiment.Variants = []experiment.Variant{{Name: "off", Noise: true}, {Name: "idle"}}
	r.Variants = []Variant{{Name: "off"}, {Name: "idle"}}
	r.Points = []Point{{Mode: load.Closed, Connections: 192, Rounds: 2}}
	r.Environment = Environment{CPUModel: "Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz", CPUs: 48, Hardware: &device.Hardware{Sockets: sockets},
		Network: Network{LinkRate: 200e9}, Cards: []Card{{Host: "sut", Driver: "mlx5_core", Speed: 100e9}, {Host: "a"}}}
	r.Windows = nil
	for i := range 2 {
		for name, share := range map[string]float64{"off": 0.5, "idle": 1} {
			w := window(name, i, 2000, 50e3)
			bytes := uint64(gbit * share * 1e9 / 8)
			w.Machine.Device = &machine.Device{Name: "eth0", Tx: []device.QueueCounter{{Bytes: bytes}},
				Rx: []device.QueueCounter{{Bytes: bytes / 10}}}
			if covers != "" {
				w.Power = []power.Result{{Provenance: power.Provenance{Source: "snmp", Covers: covers}, Duration: 1e9,
					Estimate: &power.Estimate{Energy: power.Interval{Value: 100, Low: 99, High: 101},
						Power: power.Interval{Value: 100, Low: 99, High: 101}}}}
			}
			r.Windows = append(r.Windows, w)
		}
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6*math.Abs(b) }

// TestServers: the variant without noise counts, by what the device sent in one direction, and power is
// that of the same windows.
func TestServers(t *testing.T) {
	var s Servers
	must.Do(t, s.Add("", delivering(2, 150, "the host"), "", "a.json"))
	must.Do(t, s.Add("", delivering(1, 80, ""), "off", "b.json"))
	must.Do(t, s.Finish())
	if len(s.Servers) != 2 || s.Servers[0].Name != "2x Intel Xeon Gold 6252N" || s.Servers[1].Sockets != 1 {
		t.Fatalf("%+v", s.Servers)
	}
	if got := s.Servers[0].Cards; len(got) != 1 || got[0] != "mlx5_core 100 Gbit/s" {
		t.Errorf("cards %q", got)
	}
	a, b := s.Runs[0], s.Runs[1]
	if a.Variant != "idle" || a.Load != "48 for each client" || !near(*a.Rate, 150) || !near(s.Share(a), 0.75) {
		t.Errorf("%+v, %v Gbit/s, %v of the link", a, *a.Rate, s.Share(a))
	}
	if p := a.RatePerWatt; p == nil || !near(p.Value, 1.5) || !near(p.High, 150.0/99) || a.Covers != "the host" {
		t.Errorf("%+v of %s", p, a.Covers)
	}
	if b.Variant != "off" || !near(*b.Rate, 40) || b.RatePerWatt != nil || b.Missing != "power was not measured" {
		t.Errorf("%+v", b)
	}
	for format, want := range map[string][]string{
		Text: {"2x Intel Xeon Gold 6252N   2 ", "150.00", "75.0 %", "1.50 (1.49 to 1.52)", "power was not measured"},
		CSV: {
			"2x Intel Xeon Gold 6252N,2,live,48 for each client,idle,150,200,1.5,1.48515,1.51515,the host,,a.json",
			",40,200,,,,,power was not measured,b.json",
		},
		Markdown: {"| 2x Intel Xeon Gold 6252N | 2 | live | 48 for each client | idle | 150.00 | 75.0 % |"},
	} {
		var out bytes.Buffer
		must.Do(t, WriteServers(&out, &s, format))
		errtest.Has(t, format, out.String(), want...)
	}
}

// TestServersRefuse: what cannot be compared is refused, or has a note.
func TestServersRefuse(t *testing.T) {
	var s Servers
	errtest.Says(t, "nothing", s.Finish(), "no load point was measured")
	virtual := delivering(1, 10, "")
	virtual.Virtual = true
	errtest.Says(t, "virtual time", s.Add("", virtual, "", "v.json"), "v.json: a run in virtual time")
	errtest.Says(t, "variant", s.Add("", delivering(1, 10, ""), "gone", "a.json"),
		`a.json: no variant "gone", want one of off, idle`)
	must.Do(t, s.Add("x", delivering(1, 10, "the host"), "", "a.json"))
	must.Do(t, s.Add("x", delivering(1, 10, "the host"), "off", "a.json"))
	errtest.Says(t, "twice", s.Add("x", delivering(1, 10, ""), "", "b.json"), "b.json: x, \"live\", 48 for each "+
		"client is there already")
	errtest.Says(t, "other processors", s.Add("x", delivering(2, 10, ""), "", "b.json"), "b.json: server x has other "+
		"processors")
	short := delivering(1, 10, "the processors")
	short.Title, short.Experiment.Lab = "VoD", &experiment.Lab{}
	short.Experiment.Sized = []string{"sizes.lab", "sizes.quick"}
	short.Partial = &Partial{Reason: "interrupted"}
	must.Do(t, s.Add("x", short, "", "c.json"))
	must.Do(t, s.Finish())
	errtest.Has(t, "notes", strings.Join(s.Notes, "\n"), "c.json: a lab on one machine", "c.json: a short form",
		"c.json: partial: interrupted", "only where it covers the same: the host; the processors")
	uncounted := delivering(1, 10, "the host")
	for i := range uncounted.Windows {
		uncounted.Windows[i].Machine = nil
	}
	must.Do(t, s.Add("y", uncounted, "", "d.json"))
	if r := s.Runs[len(s.Runs)-1]; r.Rate != nil || r.RatePerWatt != nil || s.Share(r) != 0 ||
		r.Missing != "the device's bytes were not counted" {
		t.Errorf("%+v", r)
	}
}

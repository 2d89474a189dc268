// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab/virtual"
)

var update = flag.Bool("update", false, "write what is measured to testdata")

// goldenFile has a line for each figure of each mechanism: the lowest and the highest value with the
// seeds 1 to goldenSeeds. A figure outside this range, widened by a tolerance, differs.
//
// Figures depend on the seed where a hash with a random key decides: which receive queue a flow gets,
// and with it the transmit queue (card-htb, mqprio), and which flows share a queue of fq_codel, which
// niclane gives to the default lane (htb-offload: with a pfifo there, all seeds give the same figures).
// They depend in the same way on the kernel's build, and on what took random numbers before: the path
// of this program is enough, which differs with each "go test". So a run is one more draw, and there
// are enough seeds to know how far draws lie apart.
const (
	goldenFile  = "testdata/mechanisms.txt"
	goldenSeeds = 20
)

// Tolerances are relative, and at least an absolute value.
const (
	latencyTolerance, leastLatency = 0.03, 0.5  // us
	rateTolerance, leastRate       = 0.02, 0.05 // Mbit/s, answers/s
)

// figures are what an experiment measures, by name and unit. Rates are those of Ethernet frames.
type figures map[string]float64

// A span is the lowest and the highest value of a figure.
type span struct{ low, high float64 }

// A golden has the spans of figures by mechanism.
type golden struct {
	mu    sync.Mutex
	spans map[string]map[string]span
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	g := &golden{spans: map[string]map[string]span{}}
	text, err := os.ReadFile(goldenFile)
	must.Do(t, err)
	for line := range strings.Lines(string(text)) {
		var mechanism, name, unit string
		var s span
		_, err := fmt.Sscan(line, &mechanism, &name, &unit, &s.low, &s.high)
		must.Do(t, err)
		if g.spans[mechanism] == nil {
			g.spans[mechanism] = map[string]span{}
		}
		g.spans[mechanism][name+" "+unit] = s
	}
	return g
}

func (g *golden) set(mechanism string, s map[string]span) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spans[mechanism] = s
}

func (g *golden) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, m := range slices.Sorted(maps.Keys(g.spans)) {
		for _, name := range slices.Sorted(maps.Keys(g.spans[m])) {
			s := g.spans[m][name]
			fmt.Fprintf(&b, "%-21s %-14s %8.3f %8.3f\n", m, name, s.low, s.high)
		}
	}
	must.Do(t, os.WriteFile(goldenFile, []byte(b.String()), 0o644))
}

// differences returns what differs from the golden, one text for each figure.
func (g *golden) differences(mechanism string, f figures) (why []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(g.spans[mechanism])) {
		s := g.spans[mechanism][name]
		got, ok := f[name]
		tolerance, least := rateTolerance, leastRate
		if strings.HasSuffix(name, " us") {
			tolerance, least = latencyTolerance, leastLatency
		}
		low, high := max(0, s.low-max(tolerance*s.low, least)), s.high+max(tolerance*s.high, least)
		if !ok || got < low || got > high {
			why = append(why, fmt.Sprintf("%s: %.2f, want %.2f to %.2f", name, got, low, high))
		}
	}
	return why
}

// seeds measures a mechanism with each seed of the golden.
func seeds(t *testing.T, m mechanism) map[string]span {
	spans := map[string]span{}
	for seed := range goldenSeeds {
		for name, v := range m.measure(t, uint64(seed+1)) {
			s, ok := spans[name]
			if !ok {
				s = span{math.Inf(1), math.Inf(-1)}
			}
			spans[name] = span{min(s.low, v), max(s.high, v)}
		}
	}
	return spans
}

// outDir is the environment variable with the directory for a guest's figures.
const outDir = "NICLANE_VIRTUAL_OUT"

// measure runs the experiment in a guest, and returns nil in the guest.
func (m mechanism) measure(t *testing.T, seed uint64) (f figures) {
	t.Helper()
	if out := os.Getenv(outDir); out != "" {
		text, err := json.Marshal(experiment(t, m))
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(out, "figures.json"), text, 0o644))
		return nil
	}
	c := virtual.Config{Seed: seed, Writable: []string{t.TempDir()}}
	c.Env = []string{outDir + "=" + c.Writable[0]}
	for _, p := range m.card {
		c.Parameters = append(c.Parameters, "simcard."+p)
	}
	runGuest(t, c)
	text, err := os.ReadFile(filepath.Join(c.Writable[0], "figures.json"))
	must.Do(t, err)
	must.Do(t, json.Unmarshal(text, &f))
	return f
}

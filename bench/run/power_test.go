// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
)

// fakeRAPL is a powercap tree with one package, whose counter step moves on.
func fakeRAPL(t *testing.T) (root string, step func(joules int)) {
	t.Helper()
	root = t.TempDir()
	zone := filepath.Join(root, "class/powercap/intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	total := 1_000_000
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name", "package-0")
	write("max_energy_range_uj", "262143328850")
	write("energy_uj", strconv.Itoa(total))
	return root, func(joules int) {
		total += joules * 1_000_000
		write("energy_uj", strconv.Itoa(total))
	}
}

// A source that cannot be read is asked once and says in each window why; one
// that can has the energy of the window.
func TestPowers(t *testing.T) {
	root, step := fakeRAPL(t)
	ctx := context.Background()
	p, warnings, err := openPowers(ctx, []power.Config{
		{Source: power.RAPL, Sysfs: t.TempDir()}, {Source: power.RAPL, Sysfs: root, Domains: []string{"package"}, UpdateInterval: 1e6},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "source 1, rapl, is not measured: ") {
		t.Errorf("%q", warnings)
	}
	end := p.start(ctx)
	step(500)
	got := end(ctx)
	if len(got) != 2 || !strings.Contains(got[0].NotMeasured, "rapl") || got[0].Estimate != nil {
		t.Fatalf("%+v", got)
	}
	if got[1].Provenance.Source != power.RAPL || got[1].StartMono == 0 || got[1].Readings < 2 {
		t.Errorf("%+v", got[1])
	}
	var both powers
	r := &result.Result{}
	if err := both.open(ctx, []power.Config{{Source: power.RAPL, Sysfs: t.TempDir()}}, r); err != nil || len(both.sources) != 1 || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "power: source 1, rapl, ") {
		t.Errorf("%v, %d sources, %q", err, len(both.sources), r.Warnings)
	}
	if _, _, err := openPowers(ctx, []power.Config{{Source: power.IPMI, Address: "bmc", Credentials: "/does/not/exist"}}); err == nil {
		t.Error("no credentials, and no error")
	}
	if none, _, err := openPowers(ctx, nil); err != nil || len(none.start(ctx)(ctx)) != 0 {
		t.Errorf("no source: %v", err)
	}
}

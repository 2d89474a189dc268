// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// BenchmarkQuietLink measures experiments/quiet-link.yaml: what a lane costs memcached where nothing
// competes with it. The report has the ratios to a host without lanes, and judges them.
func BenchmarkQuietLink(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	programs.Build(b, dir, program.Niclane, program.Bench)
	for b.Loop() {
		out, err := exec.Command(filepath.Join(dir, program.Niclane), "--state-dir", dir+"/state", "--run-dir", dir+"/run",
			"bench", "run", "../../experiments/quiet-link.yaml", "--out", dir+"/out").Output()
		if err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		b.Logf("%s", out)
	}
	b.ReportMetric(0, "ns/op")
}

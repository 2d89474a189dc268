// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/watch/systemd"
)

// TestExposure limits the exposure level that systemd-analyze security gives the units (0 to 10).
// The exposure that is left is needed for niclane's work; Sandbox gives the reasons. The test also
// compares the unit in the package with Sandbox.
func TestExposure(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	dir := t.TempDir()
	packaged, err := os.ReadFile("../../dist/niclane@.service")
	must.Do(t, err)
	if !strings.Contains(string(packaged), systemd.Sandbox(true, systemd.Families)) {
		t.Error("dist/niclane@.service has not the lines of systemd.Sandbox for any lanes file")
	}
	for name, c := range map[string]struct {
		text []byte
		most float64
	}{
		"watch":            {units["one"].Render(), 2.9},
		"watch with waits": {units["waits"].Render(), 3.2},
		"watch of a control group on a loopback address": {units["group"].Render(), 4.1},
		"niclane@lanes": {packaged, 3.9},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".service")
			must.Do(t, os.WriteFile(path, c.text, 0o644))
			out, _ := exec.Command(analyze, "security", "--offline=true", "--no-pager", path).CombinedOutput()
			m := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+) `).FindStringSubmatch(string(out))
			if m == nil {
				t.Fatalf("systemd-analyze gives no score of a file (--offline: systemd 250): %s", out)
			}
			if got, err := strconv.ParseFloat(m[1], 64); err != nil || got > c.most {
				t.Errorf("exposure %s, want at most %v\n%s", m[1], c.most, out)
			}
		})
	}
}

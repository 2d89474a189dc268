// SPDX-License-Identifier: Apache-2.0

// Package powertest has power sources for tests.
package powertest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// RAPL makes a directory like powercap's, with one package. step adds joules to the package's
// counter.
func RAPL(t *testing.T) (root string, step func(joules int)) {
	t.Helper()
	root = t.TempDir()
	zone := filepath.Join(root, "class/powercap/intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	total := 1_000_000
	write("name", "package-0")
	write("max_energy_range_uj", "262143328850")
	write("energy_uj", strconv.Itoa(total))
	return root, func(joules int) {
		total += joules * 1_000_000
		write("energy_uj", strconv.Itoa(total))
	}
}

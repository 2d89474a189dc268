// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"path/filepath"
	"strings"
)

// irqbalance reports whether the daemon irqbalance runs, as far as proc, which is /proc, shows
// processes.
func irqbalance(proc string) bool {
	names, err := filepath.Glob(proc + "/[0-9]*/comm")
	if err != nil {
		return false
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == "irqbalance" {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestIRQBalance looks for the daemon among processes, one of which is not a process and one of which
// has only a similar name.
func TestIRQBalance(t *testing.T) {
	proc := t.TempDir()
	process := func(id, name string) {
		must.Do(t, os.Mkdir(filepath.Join(proc, id), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(proc, id, "comm"), []byte(name+"\n"), 0o644))
	}
	process("1", "systemd")
	process("12", "irqbalance-ui")
	process("self", "irqbalance")
	if irqbalance(proc) {
		t.Error("found without a process")
	}
	process("345", "irqbalance")
	if !irqbalance(proc) {
		t.Error("not found")
	}
}

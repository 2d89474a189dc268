// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// cards are kinds of cards, as parameters of the module. The planner's golden tests use recorded
// probes of them (lane/plan/testdata).
var cards = map[string][]string{
	"simcard-contexts": {"queues=8", "channels=4", "contexts=16", "rules=256", "rx_classes=0"},
	"simcard-mlx5": {"driver=mlx5_core", "queues=16", "channels=8", "contexts=16", "rules=256", "rx_classes=0",
		"shaper=0", "htb_shares=1"},
	"simcard-ice": {"driver=ice", "queues=8", "channels=8", "contexts=1", "rules=256", "pow2=1",
		"mqprio_takes_rules=1", "mqprio_resizes=1"},
}

// TestRecord writes what niclane probes on each kind of card into the directory NICLANE_RECORD.
func TestRecord(t *testing.T) {
	dir := os.Getenv("NICLANE_RECORD")
	if dir == "" {
		return // the user asked for no recording
	}
	for name, params := range cards {
		t.Run(name, func(t *testing.T) {
			h := plug(t, "", params...)
			out := h.niclane(0, "--json", "probe", bed.Dev)
			if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(out[strings.Index(out, "{"):]),
				0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

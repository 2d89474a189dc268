// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/plan"
)

// TestExamplesPlan plans the examples on a card with ADQ and 8 queues. niclane must make what
// adqsetup makes: the same queues in the card's classes, the same receive filters (adqsetup's are
// IPv4 only), and the same moderation of the applications' queues.
func TestExamplesPlan(t *testing.T) {
	ports := func(class string, ports ...string) (out []string) {
		for _, p := range ports {
			out = append(out, "flower ip_proto tcp dst_port "+p+" skip_sw hw_tc "+class)
		}
		return out
	}
	for _, c := range []struct {
		name, queues string
		filters      []string
		moderated    int // number of queues whose moderation is set
	}{
		{"memcached", "queues 2@0 6@2 hw 1 mode channel", ports("1", "11211"), 6},
		{"nginx", "queues 2@0 6@2 hw 1 mode channel", ports("1", "80", "443"), 6},
		{"redis", "queues 2@0 6@2 hw 1 mode channel", ports("1", "6379", "6380", "6381", "6382", "6383", "6384"), 6},
		{"multi_app", "queues 2@0 2@2 2@4 2@6 hw 1 mode channel",
			append(append(ports("1", "11211"), ports("2", "6379", "6380")...), ports("3", "80", "443")...), 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := planned(t, "testdata/example_"+c.name+".txtar")
			var filters []string
			moderated := 0
			for line := range strings.Lines(text) {
				if _, filter, ok := strings.Cut(line, "ingress protocol ip "); ok {
					filters = append(filters, strings.TrimSpace(filter))
				}
				if strings.Contains(line, "--coalesce adaptive-rx off adaptive-tx off rx-usecs 500 tx-usecs 0") {
					moderated++
				}
			}
			if !strings.Contains(text, c.queues+"\n") {
				t.Errorf("want mqprio with %s:\n%s", c.queues, text)
			}
			if diff := cmp.Diff(c.filters, filters); diff != "" {
				t.Errorf("filters (-want +got):\n%s", diff)
			}
			if moderated != c.moderated {
				t.Errorf("moderated: got %d queues, want %d", moderated, c.moderated)
			}
		})
	}
}

// planned returns the plan of an example as text, for the card with ADQ.
func planned(t *testing.T, name string) string {
	t.Helper()
	ar, err := txtar.ParseFile(name)
	must.Do(t, err)
	p, _, _ := onCard(t, "simcard-ice", string(ar.Files[0].Data), nil)
	var text bytes.Buffer
	plan.WriteText(&text, p.Steps)
	return text.String()
}

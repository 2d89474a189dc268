// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/live/waits"
)

// TestWaits: the page has each service's picture, table and verdict, and escapes names.
func TestWaits(t *testing.T) {
	r := waits.Report{Schema: waits.Schema, Device: "eth0", Duration: 10 * time.Second, SampleRate: 1,
		Notes: []string{"card: missing"}, Services: []waits.ServiceReport{
			{Target: waits.Target{Name: "<b>", Protocol: "tcp", Ports: []uint16{80}}, Requests: 5,
				Verdict: []string{"Most of it is here."}, Waits: []waits.WaitReport{{Stage: "app",
					Percentiles: waits.Percentiles{Count: 5, P50: 1000, P90: 2000, P99: 4000, P999: 5000},
					Culprits:    []waits.Culprit{{Share: 0.62, What: "port 9100/tcp", Where: "receive queue 3 of eth0"}}}}},
			{Target: waits.Target{Name: "idle", Protocol: "udp", Ports: []uint16{53}}}}}
	var b strings.Builder
	must.Do(t, WriteWaits(&b, r))
	for _, want := range []string{"<title>Waits of live requests on eth0</title>", "every request followed",
		"&lt;b&gt;, tcp 80", "Most of it is here.", ">4 us</text>", `width="510.0"`, `width="127.5"`,
		"62 % port 9100/tcp on receive queue 3 of eth0", "idle, udp 53", "Note: card: missing."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if strings.Contains(b.String(), "<b>") {
		t.Error("a name is not escaped")
	}
}

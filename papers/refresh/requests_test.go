// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"math"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/internal/testing/must"
)

// TestForRequests: with the rates of the Kubernetes paper, 35,000 and 100,000 per second, ten servers do
// the work of 29.
func TestForRequests(t *testing.T) {
	r, err := ForRequests("P99.9 ≤ 1.00 ms", 1e6, Serving{Name: "off", Source: "a", Rate: 35_000, Beyond: 37_000},
		Serving{Name: "lane", Source: "a", Rate: 100_000})
	must.Do(t, err)
	if r.Old.Servers != 29 || r.Old.AtLeast != 28 || r.New.Servers != 10 || r.New.AtLeast != 0 || *r.Saved != 19 {
		t.Errorf("%+v", r)
	}
	none, err := ForRequests("P99.99 ≤ 1.00 ms", 1e6, Serving{Name: "off"}, Serving{Name: "lane", Rate: 100_000})
	must.Do(t, err)
	if none.Saved != nil || none.Old.Servers != 0 {
		t.Errorf("%+v of a server that is never within the SLA", none)
	}
	var b strings.Builder
	must.Do(t, WriteRequests(&b, []Requests{r, none}))
	errtest.Has(t, "text", b.String(), "within   P99.9 ≤ 1.00 ms, 1000000 requests per second\n",
		"old      off: 35000/s each, not 37000/s: 29 servers, at least 28\n",
		"new      lane: 100000/s each: 10 servers\n",
		"saved    19 servers: 29 become 10\n", "off: within it at no rate that was measured")
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		_, err := ForRequests("", rate, Serving{}, Serving{})
		errtest.Says(t, "rate", err, "want more than 0")
	}
}

// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/page"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/internal/testing/must"
)

// TestVarnish: the paper's own table gives its figures 3 to 6: live and VoD, on one and two sockets, with
// the shares of the link that follow from its Table 1.
func TestVarnish(t *testing.T) {
	var s result.Servers
	AddVarnish(&s, "")
	must.Do(t, s.Finish())
	if len(s.Servers) != 8 || len(s.Runs) != 48 {
		t.Fatalf("%d servers, %d runs", len(s.Servers), len(s.Runs))
	}
	for _, r := range s.Runs {
		f := s.Facts(r.Server)
		if f.Link == 0 || !strings.HasPrefix(r.Server, map[int]string{1: "1x", 2: "2x"}[f.Sockets]) || s.Share(r) > 1 {
			t.Errorf("%+v of %+v", r, f)
		}
	}
	var b bytes.Buffer
	must.Do(t, page.WriteServers(&b, &s, "v1"))
	text := b.String()
	errtest.Has(t, "the page", text, "The paper&#39;s live, one socket</h2>", "The paper&#39;s live, two sockets</h2>",
		"The paper&#39;s VoD, one socket</h2>", "The paper&#39;s VoD, two sockets</h2>",
		"The paper&#39;s live: at most 1,557 Gbit/s, by 2x6780E, and 1.57 Gbit/s per W, by 1x6766E.",
		"97.3 % of the link",
		"52.4 % of the link", "69.4 % of the link", "Power of the whole server, at its inlets")
	errtest.Lacks(t, "the page", text, "ZgotmplZ", "NaN", "<script", "number of sockets not known")
	if n := strings.Count(text, `class="fill"`); n != 2*48 {
		t.Errorf("%d bars, want one for each rate and each rate per watt", n)
	}
}

// TestClaimsAreInTheTable: each claim about what a server delivers is a row of the paper's own table.
func TestClaimsAreInTheTable(t *testing.T) {
	var s result.Servers
	AddVarnish(&s, "")
	for work, claims := range map[string][]Claim{"The paper's live": live, "The paper's VoD": vod} {
		for _, c := range claims {
			if !slices.ContainsFunc(s.Runs, func(r result.ServerRun) bool {
				value := s.Share(r)
				if c.Measure == PerWatt {
					value = r.RatePerWatt.Value
				}
				return r.Work == work && s.Facts(r.Server).Sockets == c.Sockets && math.Abs(value-c.Paper) < 1e-9 &&
					r.Load == fmt.Sprint(c.PerClient)+result.ForEachClient
			}) {
				t.Errorf("%s: no row has %v with %d sockets at %d connections", c.Text, c.Paper, c.Sockets, c.PerClient)
			}
		}
	}
}

// TestServersWithoutPower: a run without power has no bar of it, and sources of power that cover other
// parts are not in one picture.
func TestServersWithoutPower(t *testing.T) {
	var s result.Servers
	AddVarnish(&s, "")
	s.Runs = s.Runs[:9] // three loads of 1x6252N, 2x6252N and 1x6710E
	for i := range s.Runs[:3] {
		s.Runs[i].RatePerWatt, s.Runs[i].Covers, s.Runs[i].Missing = nil, "", "power was not measured"
	}
	s.Runs[8].Covers = "the processors"
	must.Do(t, s.Finish())
	var b bytes.Buffer
	must.Do(t, page.WriteServers(&b, &s, "v1"))
	text := b.String()
	errtest.Has(t, "the page", text, "only where it covers the same", "Power of the processors.",
		`<span class="refused">power was not measured</span>`)
	if n := strings.Count(text, `class="fill"`); n != 9+6 {
		t.Errorf("%d bars, want 9 rates and 6 of power", n)
	}
	if n := strings.Count(text, "The paper&#39;s live, one socket</h2>"); n != 2 {
		t.Errorf("%d pictures of one socket, want one for each coverage", n)
	}
	errtest.Lacks(t, "the headline", text[:strings.Index(text, "</header>")], "per W, by")
	for i := range s.Runs {
		s.Runs[i].RatePerWatt, s.Runs[i].Covers, s.Runs[i].Missing = nil, "", "power was not measured"
	}
	b.Reset()
	must.Do(t, page.WriteServers(&b, &s, "v1"))
	errtest.Has(t, "without power", b.String(), "No Gbit/s per W: power was not measured.")
}

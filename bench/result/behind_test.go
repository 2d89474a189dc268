// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/stats/statstest"
)

// TestBehind checks that the text of a single load point has the details after its numbers.
func TestBehind(t *testing.T) {
	r := fixture()
	backlog := statstest.Equal(2000, 62_500) // 1 ms at 500 Mbit/s
	for i := range r.Windows {
		r.Windows[i].Hops = []Hop{{Name: "switch → SUT", Reach: ReachNone, Rate: 500e6, Bytes: backlog, Drops: 1}}
		if r.Windows[i].Variant == "twin" {
			r.Windows[i].Hops = append(r.Windows[i].Hops, Hop{Name: "the lane's class", Reach: ReachOwn, Rate: 500e6,
				Bytes: backlog})
		}
	}
	late := statstest.Equal(2000, 50_000)
	r.HostNoise = []hiccup.Result{{CPUs: []hiccup.CPU{{CPU: 1, Late: late, Steal: 10, Busy: 200, Total: 1000}}}}
	r.Variants[0].Differences = []string{"tuned"}
	var b bytes.Buffer
	if err := WriteFormat(&b, r, Text); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(b.String()), " ")
	errtest.Has(t, "of one load point", words,
		"switch → SUT out of reach idle 62.5 kB 62.5 kB 62.5 kB 1.00 ms 1.00 ms 10",
		"the lane's class the lane's own twin 62.5 kB",
		"what the SUT did meanwhile idle no-lane twin",
		"/request",
		"before cpu 1 50.0 µs 50.0 µs - 50.0 µs 1.0 % 20.0 %",
		"idle: - tuned")
	r.Points = append(r.Points, r.Points[0])
	b.Reset()
	if err := WriteFormat(&b, r, Text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "queues on the way") {
		t.Error("of two load points it is not told which")
	}
}

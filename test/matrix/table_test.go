// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	s := section{name: "test/bench", text: []string{
		"goos: linux",
		"BenchmarkChain-2 \t 1\t 0 ns/op\t 9000 ns-u32/1\t 80000 ns-u32/1000\t 8000 ns-none/1\t 10000 " +
			"ns-none/1000\t 10000 ns-niclane/1\t 12500 ns-niclane/1000",
		"PASS",
	}}
	var b strings.Builder
	if err := s.table(&b, "members"); err != nil {
		t.Fatal(err)
	}
	const want = `  kpkt/s (of none)      1 members   1000 members
              none  125.00 (1.00)  100.00 (1.00)
           niclane  100.00 (0.80)   80.00 (0.80)
               u32  111.11 (0.89)   12.50 (0.12)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "BenchmarkChain 1 5 ns-u32/1", "BenchmarkChain 1 0 ns-none/1"} {
		if err := (&section{text: []string{text}}).table(&b, "members"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

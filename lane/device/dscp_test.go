// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"testing"
)

// TestDSCPNames compares the names with the rules of their RFCs, and reads each value back. It does the
// latter for PCPs too.
func TestDSCPNames(t *testing.T) {
	want := map[string]int{"le": 1, "va": 44, "ef": 46}
	for x := range 8 { // RFC 2474, 4.2.2.1: the old IP precedence
		want[fmt.Sprintf("cs%d", x)] = x << 3
	}
	for class := 1; class <= 4; class++ { // RFC 2597, 6: class and drop precedence
		for drop := 1; drop <= 3; drop++ {
			want[fmt.Sprintf("af%d%d", class, drop)] = class<<3 | drop<<1
		}
	}
	for name, value := range want {
		if got := FormatDSCP(value); got != name {
			t.Errorf("%d is %q, want %q", value, got, name)
		}
	}
	if got := DSCPNames(); len(got) != len(want) || got[0] != "cs0" || got[1] != "le" {
		t.Errorf("names %v, want %d, the first cs0 and le", got, len(want))
	}
	for value := range MaxDSCP + 1 {
		for _, s := range []string{FormatDSCP(value), fmt.Sprint(value)} {
			if got, err := ParseDSCP(s); err != nil || got != value {
				t.Errorf("%q is %d, %v, want %d", s, got, err, value)
			}
		}
	}
	for pcp := range MaxPCP + 1 {
		if got, err := ParsePCP(FormatPCP(pcp)); err != nil || got != pcp {
			t.Errorf("PCP %d is %d, %v", pcp, got, err)
		}
	}
	for _, s := range []string{"", "8", "-1", "05", "5 ", "/", ":"} {
		if got, err := ParsePCP(s); err == nil {
			t.Errorf("PCP %q is %d, want it refused", s, got)
		}
	}
	for _, s := range []string{"", "64", "-1", "046", "0x2e", "af14", "EF", "cs8", "ef "} {
		if got, err := ParseDSCP(s); err == nil {
			t.Errorf("%q is %d, want it refused", s, got)
		}
	}
}

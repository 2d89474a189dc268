// SPDX-License-Identifier: Apache-2.0

package result

import "testing"

// TestDoubtKeys checks which texts count as one doubt: those that differ only in numbers, or in the
// processes that used the processors. Texts about different percentiles do not.
func TestDoubtKeys(t *testing.T) {
	var d doubts
	here := Where{Point: "p", Variant: "v", Of: 3}
	d.add("others used 99 % of cpu 0, most of it link", here, 0)
	d.add("others used 7.5 % of cpu 0, most of it compile, go", here, 2)
	d.add("P99 is the generator's: 3ms late", here, -1)
	d.add("P99.9 is the generator's: 4ms late", here, -1)
	if len(d.list) != 3 {
		t.Fatalf("%d doubts: %+v", len(d.list), d.list)
	}
	if x := d.list[0]; x.Windows() != 2 || x.String() != "others used 99 % of cpu 0, most of it link [v (repeats 1, "+
		"3 of 3)]" {
		t.Errorf("%d windows, %q", x.Windows(), x)
	}
}

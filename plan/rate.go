// SPDX-License-Identifier: Apache-2.0

package plan

import "fmt"

// rateText gives bit/s with the largest unit of tc(8) that keeps three
// digits: "980mbit".
func rateText(bps uint64) string {
	for _, u := range []struct {
		name string
		of   uint64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}} {
		if bps >= u.of {
			return fmt.Sprintf("%.4g%s", float64(bps)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%dbit", bps)
}

// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
)

// MaxPCP is the largest priority code point of a VLAN tag (IEEE 802.1Q): the field has three bits.
const MaxPCP = 7

// FormatPCP returns a priority code point in decimal.
func FormatPCP(pcp int) string { return strconv.Itoa(pcp) }

// ParsePCP returns the value of a priority code point that is given in decimal, "0" to "7".
func ParsePCP(s string) (int, error) {
	if len(s) == 1 && s[0] >= '0' && s[0] <= '0'+MaxPCP {
		return int(s[0] - '0'), nil
	}
	return 0, fmt.Errorf("%q is not a PCP: want 0 to %d", s, MaxPCP)
}

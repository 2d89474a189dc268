// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strconv"
)

// MaxDSCP is the largest DSCP (RFC 2474): the field has six bits.
const MaxDSCP = 63

// dscpNames are the names of DSCPs by value, "" for a value without a name. Sources: RFC 2474
// (cs), RFC 2597 (af), RFC 3246 (ef), RFC 5865 (va), RFC 8622 (le). RFC 4594 and RFC 8325 say what
// they are used for.
var dscpNames = [MaxDSCP + 1]string{
	0: "cs0", 8: "cs1", 16: "cs2", 24: "cs3", 32: "cs4", 40: "cs5", 48: "cs6", 56: "cs7",
	10: "af11", 12: "af12", 14: "af13", 18: "af21", 20: "af22", 22: "af23",
	26: "af31", 28: "af32", 30: "af33", 34: "af41", 36: "af42", 38: "af43",
	46: "ef", 44: "va", 1: "le",
}

// DSCPNames returns the names of all DSCPs that have one, in ascending order of the values.
func DSCPNames() []string {
	return slices.DeleteFunc(slices.Clone(dscpNames[:]), func(name string) bool { return name == "" })
}

// FormatDSCP returns the name of a DSCP, or its number in decimal if it has none.
func FormatDSCP(dscp int) string {
	if dscp >= 0 && dscp <= MaxDSCP && dscpNames[dscp] != "" {
		return dscpNames[dscp]
	}
	return strconv.Itoa(dscp)
}

// ParseDSCP returns the value of a DSCP that is given by name, or by number in decimal.
func ParseDSCP(s string) (int, error) {
	if i := slices.Index(dscpNames[:], s); i >= 0 && s != "" {
		return i, nil
	}
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && n <= MaxDSCP && s == strconv.FormatUint(n, 10) {
		return int(n), nil
	}
	return 0, fmt.Errorf("%q is not a DSCP: want a name such as ef, cs5 or af41, or 0 to %d", s, MaxDSCP)
}

// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DCBPriorities is the number of priorities of IEEE 802.1Q.
const DCBPriorities = 8

// A DCB is what a driver says of Data Center Bridging (IEEE 802.1Qaz, the kernel's dcbnl): the priority
// that a device gives received packets by their headers, and the traffic class of each priority.
type DCB struct {
	// Trust are the selectors by which the device chooses a packet's priority, the first one goes first.
	// It is empty if the device trusts none, and nil if the driver does not say (before Linux 6.2, and
	// most drivers since).
	Trust []string `json:"trust"`
	// Apps are the entries of the APP table, ordered by selector, ID and priority. The kernel keeps
	// them, and the driver may use them.
	Apps []DCBApp `json:"apps,omitempty"`
	// Classes are the traffic classes of the priorities 0 to 7; nil if the driver does not say.
	Classes []int `json:"classes,omitempty"`
}

// A DCBApp gives packets with an ID the priority Priority, 0 to 7.
type DCBApp struct {
	// Selector says what ID is, as dcb-app(8) of iproute2 names it: SelectorDSCP, SelectorPCP,
	// "ethtype", "stream-port", "dgram-port", "port", or its number.
	Selector string `json:"selector"`
	// ID is a DSCP, a PCP (plus 8 with the drop eligible bit), an EtherType (0: the priority of all other
	// packets) or a port.
	ID       int `json:"id"`
	Priority int `json:"priority"`
}

// Selectors that describe marks of packets.
const (
	SelectorDSCP = "dscp"
	SelectorPCP  = "pcp"
)

// DCBSelector returns the name of a selector of linux/dcbnl.h.
func DCBSelector(n uint8) string {
	switch n {
	case 1:
		return "ethtype"
	case 2:
		return "stream-port"
	case 3:
		return "dgram-port"
	case 4:
		return "port"
	case 5:
		return SelectorDSCP
	case 255: // DCB_APP_SEL_PCP, Linux 6.2
		return SelectorPCP
	}
	return strconv.Itoa(int(n))
}

// Text describes d in one line: "trusts dscp, pcp; DSCP ef → 5; PCP 3 → 3; classes of priorities 0-7: 0 0 0 0 0 1 0 0".
func (d *DCB) Text() string {
	var parts []string
	switch {
	case d.Trust == nil:
		parts = append(parts, "the driver does not say what it trusts")
	case len(d.Trust) == 0:
		parts = append(parts, "trusts nothing")
	default:
		parts = append(parts, "trusts "+strings.Join(d.Trust, ", "))
	}
	parts = append(parts, d.priorities(SelectorDSCP, "DSCP", FormatDSCP),
		d.priorities(SelectorPCP, "PCP", formatPCPAndDEI))
	if d.Classes != nil {
		parts = append(parts, "traffic classes of priorities 0 to 7: "+strings.Trim(fmt.Sprint(d.Classes), "[]"))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

// formatPCPAndDEI formats the ID of an entry with SelectorPCP.
func formatPCPAndDEI(id int) string {
	if id > MaxPCP {
		return FormatPCP(id-MaxPCP-1) + "+de"
	}
	return FormatPCP(id)
}

// priorities describes the entries with a selector, "" if there are none.
func (d *DCB) priorities(selector, name string, format func(int) string) string {
	var out []string
	for _, a := range d.Apps {
		if a.Selector == selector {
			out = append(out, fmt.Sprintf("%s → %d", format(a.ID), a.Priority))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "priorities by " + name + ": " + strings.Join(out, ", ")
}

// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"fmt"
	"strconv"
	"strings"
)

// Special handles (linux/pkt_sched.h).
const (
	handleRoot    = 0xffffffff // TC_H_ROOT
	handleClsact  = 0xfffffff1 // TC_H_CLSACT, also TC_H_INGRESS
	clsactIngress = 0xfffffff2 // TC_H_MIN_INGRESS of clsact
	clsactEgress  = 0xfffffff3 // TC_H_MIN_EGRESS of clsact
)

// ParseHandle parses "1:", "1:10" or ":10". The parts are hexadecimal without a prefix, from 0
// to ffff (tc(8), "HANDLES").
func ParseHandle(s string) (uint32, error) {
	maj, minor, ok := strings.Cut(s, ":")
	if !ok {
		return 0, fmt.Errorf("handle %q: want MAJOR:MINOR in hexadecimal", s)
	}
	var h uint32
	for _, part := range []string{maj, minor} {
		var n uint64
		if part != "" {
			var err error
			if n, err = strconv.ParseUint(part, 16, 16); err != nil {
				return 0, fmt.Errorf("handle %q: want MAJOR:MINOR in hexadecimal, each up to ffff", s)
			}
		}
		h = h<<16 | uint32(n)
	}
	return h, nil
}

// FormatHandle is the inverse of ParseHandle: "1:" for a qdisc, "1:10" for a class.
func FormatHandle(h uint32) string {
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", h>>16)
	}
	return fmt.Sprintf("%x:%x", h>>16, h&0xffff)
}

// parseParent parses the parent of a qdisc: "root", "clsact" or a class.
func parseParent(s string) (uint32, error) {
	switch s {
	case "root":
		return handleRoot, nil
	case "clsact":
		return handleClsact, nil
	}
	return ParseHandle(s)
}

func formatParent(h uint32) string {
	switch h {
	case handleRoot:
		return "root"
	case handleClsact:
		return "clsact"
	}
	return FormatHandle(h)
}

func parseHook(s string) (uint32, error) {
	switch s {
	case "ingress":
		return clsactIngress, nil
	case "egress":
		return clsactEgress, nil
	}
	return 0, fmt.Errorf("filter parent %q: want ingress or egress", s)
}

// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// Members returns each member of a lane as text: "tcp 80,443 at 10.0.0.1".
func Members(l *intent.Lane) []string {
	var out []string
	for _, m := range l.Members {
		words := []string{m.Protocol}
		if len(m.Ports) > 0 {
			words = append(words, ports(m.Ports))
		}
		if len(m.Addrs) > 0 {
			words = append(words, "at "+addresses(m.Addrs))
		}
		if len(m.RemotePorts) > 0 {
			words = append(words, "with remote "+ports(m.RemotePorts))
		}
		if len(m.RemoteAddrs) > 0 {
			words = append(words, "with "+addresses(m.RemoteAddrs))
		}
		if m.Cgroup != "" {
			words = append(words, "of "+m.Cgroup)
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func ports(all []uint16) string {
	ids := make([]int, len(all))
	for i, p := range all {
		ids[i] = int(p)
	}
	return device.FormatCPUList(ids)
}

func addresses(all []netip.Prefix) string {
	out := make([]string, len(all))
	for i, p := range all {
		if out[i] = p.String(); p.IsSingleIP() {
			out[i] = p.Addr().String()
		}
	}
	return strings.Join(out, ",")
}

// fewMembers is the largest number of members that a table names.
const fewMembers = 2

func members(all []string) string {
	switch more := len(all) - fewMembers; {
	case len(all) == 0:
		return "-"
	case more > 0:
		return fmt.Sprintf("%s; %d more", strings.Join(all[:fewMembers], "; "), more)
	}
	return strings.Join(all, "; ")
}

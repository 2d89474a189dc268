// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// hostIf is the interface of this network namespace whose other end is the pod's, by a
// process of the pod's network namespace; "" where it cannot be told: the pod's is no
// end of a veth pair, or the other end is elsewhere.
func hostIf(pid int) string {
	if pid <= 0 {
		return ""
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return ""
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return ""
	}
	defer inside.Close()
	pod, err := inside.LinkByName(ifName)
	if err != nil {
		return ""
	}
	host, err := netlink.LinkByIndex(pod.Attrs().ParentIndex)
	// An index says nothing of the namespace it is of: both have to name each other.
	if err != nil || pod.Type() != "veth" || host.Type() != "veth" || host.Attrs().ParentIndex != pod.Attrs().Index {
		return ""
	}
	return host.Attrs().Name
}

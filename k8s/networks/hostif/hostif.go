// SPDX-License-Identifier: Apache-2.0

// Package hostif finds the host's end of a pod's interface. It does not use names, because
// each pod network chooses its own.
package hostif

import (
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// pairs are the kinds of links that have another end.
var pairs = []string{"veth", "netkit"}

// OfProcess returns the interface of this network namespace whose other end is called name in
// the network namespace of a process. It returns "" if it is not known: the link is not one
// of a pair, or the other end is elsewhere.
func OfProcess(pid int, name string) string {
	if pid <= 0 {
		return ""
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return ""
	}
	return of(ns, name)
}

// OfPath is OfProcess with the path of a network namespace, as CNI gives it.
func OfPath(path, name string) string {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return ""
	}
	return of(ns, name)
}

func of(ns netns.NsHandle, name string) string {
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return ""
	}
	defer inside.Close()
	pod, err := inside.LinkByName(name)
	if err != nil {
		return ""
	}
	own, err := netns.Get()
	if err != nil {
		return ""
	}
	defer own.Close()
	// An index is valid in one namespace only. The pod's namespace has an ID for this one.
	id, err := inside.GetNetNsIdByFd(int(own))
	if err != nil || id < 0 || id != pod.Attrs().NetNsID || !slices.Contains(pairs, pod.Type()) {
		return ""
	}
	host, err := netlink.LinkByIndex(pod.Attrs().ParentIndex)
	if err != nil {
		return ""
	}
	return host.Attrs().Name
}

// SPDX-License-Identifier: Apache-2.0

// Package hostif finds the host's end of a pod's interface. It does not search by name, because
// each pod network chooses its own names.
package hostif

import (
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// pairs are the kinds of links that exist in pairs: one end in the pod, the other on the host.
var pairs = []string{"veth", "netkit"}

// OfProcess returns the name of the host's end of a pod's link. The pod's end is called name, in
// the network namespace of process pid. OfProcess returns "" if this link is not one of a pair, or
// if its other end is not in the caller's network namespace.
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

// OfPath does the same as OfProcess, for the pod's network namespace at a path, as CNI gives it.
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
	// An interface index is valid in one namespace only. So the other end must be in the caller's
	// namespace: id is the number by which the pod's namespace knows it.
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

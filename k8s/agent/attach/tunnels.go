// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"net/netip"
	"slices"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/events"
)

// reachable returns the tunnels in which packets with these addresses pass the card. It returns an error
// if niclane does not see the addresses there. The error says why.
func (a *Attacher) reachable(addrs []netip.Addr) ([]string, error) {
	d := a.Lanes.Now().Device
	if d == nil || a.Reachable == nil {
		return nil, nil
	}
	return a.Reachable(d.Name, a.Addrs(), addrs)
}

// FollowTunnels attaches pods in lanes again if their packets now pass the card in other tunnels, because
// the pod network has changed. If niclane does not see the packets there, an event about the pod says so,
// once for each reason. FollowTunnels must not be called twice at the same time.
func (a *Attacher) FollowTunnels(ctx context.Context) {
	if a.Reachable == nil || a.Lanes.Now().Device == nil {
		return // the lanes are not made yet
	}
	said := map[string]string{}
	for _, of := range byFamily(a.Lanes.Attachments()) {
		if len(of) == 0 {
			continue
		}
		var all []netip.Addr
		for i := range of {
			all = append(all, of[i].Addrs...)
		}
		ofAll, hidden := a.reachable(all)
		for i := range of {
			at := &of[i]
			now, err := ofAll, hidden
			if hidden != nil { // it may be true of one of the pods only
				now, err = a.reachable(at.Addrs)
			}
			if err == nil && !slices.Equal(now, at.Tunnels) {
				at.Tunnels = now
				err = a.Lanes.Attach(ctx, *at)
			}
			if err == nil || ctx.Err() != nil {
				continue
			}
			if said[at.UID] = err.Error(); a.outside[at.UID] != err.Error() {
				a.Log.Warn("the pod network hides packets of a pod from its lane", "pod", at.Name(), "error", err)
				a.Event(at.Namespace, at.Pod, at.UID, events.LaneBypassed, "the pod's packets are outside its lane: "+
					err.Error())
			}
		}
	}
	a.outside = said
}

// byFamily returns the attachments of pods with addresses of their own, grouped by whether they have IPv4
// and IPv6: the answer of Reachable is mostly the same for a group.
func byFamily(all []lanes.Attachment) (groups [4][]lanes.Attachment) {
	for _, at := range all {
		families := 0
		for _, addr := range at.Addrs {
			if addr.Is4() {
				families |= 1
			} else {
				families |= 2
			}
		}
		if families != 0 {
			groups[families] = append(groups[families], at)
		}
	}
	return groups
}

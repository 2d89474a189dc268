// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// This file has the software mqprio (hw 0). It gives each lane a traffic class, and each class
// its own transmit queues. A hash of the flow chooses among these queues. mqprio finds the class
// by the lowest four bits of skb->priority.

// The first eight lanes have the priorities from firstLanePriority on. Lower priorities can also
// be on other packets: applications set up to 6 by SO_PRIORITY without CAP_NET_ADMIN, the kernel
// sets some by IP_TOS (net/ipv4/route.c: ip_tos2prio), and TC_PRIO_CONTROL is 7. Further lanes
// get these priorities too, from 7 down to 1, but only if the classifier knows each packet's
// lane: it then removes these priorities from other packets.
const (
	priorities        = 16 // TC_PRIO_MAX + 1
	firstLanePriority = 8
	ownPriorities     = priorities - firstLanePriority
)

// maxPriorityLanes returns the largest number of lanes for which there are priorities.
func (f *fit) maxPriorityLanes() int {
	if f.byGroup() {
		return ownPriorities
	}
	return priorities - 1
}

// byPriority reports whether an mqprio, of the card or in software, maps the lanes to transmit
// queues.
func (f *fit) byPriority() bool { return f.uses(device.PartMapper, ByMqprioSoft) || f.byCard() }

// lanePriority returns the skb->priority of a lane's packets under mqprio.
func lanePriority(number int) int {
	if number > ownPriorities {
		return priorities - number
	}
	return firstLanePriority + number - 1
}

// priorityNumber returns the number of the lane that has this mqprio priority, which is given as
// a handle. It returns 0 if no lane can have it.
func priorityNumber(handle string) int {
	if strings.HasPrefix(handle, rootHandle) { // an HTB class, as in most plans
		return 0
	}
	p, err := strconv.ParseUint(strings.TrimPrefix(handle, "0:"), 16, 16)
	switch {
	case err != nil || p == 0 || p >= priorities:
		return 0
	case p < firstLanePriority:
		return priorities - int(p)
	}
	return int(p) - firstLanePriority + 1
}

// noMqprio returns the reason why an mqprio cannot map these lanes, "" if it can.
func (f *fit) noMqprio(lanes []*deviceLane) string {
	switch {
	case !f.byPriority():
		return ""
	case f.sharedQueues:
		return f.noQueues()
	case len(lanes)-1 > f.maxPriorityLanes() && f.byGroup():
		return fmt.Sprintf("%d lanes, and there are %d priorities that no other packets have", len(lanes)-1,
			f.maxPriorityLanes())
	case len(lanes)-1 > f.maxPriorityLanes():
		return fmt.Sprintf("%d lanes, and there are %d priorities beside the default lane's", len(lanes)-1,
			f.maxPriorityLanes())
	case f.choice[device.PartBandwidth].Mechanism == "" && shaped(lanes):
		return fmt.Sprintf("it takes the root qdisc, where %s would give "+
			"%s", ByHTB, strings.Join(asked(lanes), " and "))
	case f.byCard():
		return f.noClasses(lanes)
	}
	return ""
}

// wantMqprio makes the traffic classes. Class 0 is the default lane's. It has every priority that
// no other lane has.
func (f *fit) wantMqprio(lanes []*deviceLane) {
	if !f.byPriority() || len(lanes) < 2 || f.mqprioWanted() {
		return
	}
	// The kernel clears XPS when an mqprio is made and when it is removed. A plan step therefore
	// clears XPS before, and rollback restores it after mqprio is removed.
	pairs := f.pairs(lanes)
	f.wantNoXPS("mqprio clears XPS, so niclane clears it first and rollback restores it", pairs)
	classes := make([]string, priorities)
	for i := range classes {
		classes[i] = "0"
	}
	queues := make([]string, len(lanes))
	for i, l := range lanes {
		queues[i] = fmt.Sprintf("%d@%d", len(l.queues), l.queues[0])
		if !l.isDefault {
			classes[lanePriority(l.number)] = fmt.Sprint(i)
		}
	}
	q := device.Qdisc{
		Dev: f.dev.Name, Parent: "root", Type: "mqprio", Handle: rootHandle,
		Map: strings.Join(classes, " "), Queues: strings.Join(queues, " "),
	}
	reason := "a traffic class for each lane, by priority, with transmit queues of its own"
	if f.byCard() {
		f.ofCard(&q, lanes)
		q = f.keptRates(q, lanes)
		reason = "a traffic class of the card for each lane, with queues of its own"
	}
	if now := f.present[q.Key()]; now != nil && !device.Equal(now, q) {
		if f.byCard() {
			f.failf("lanes", "a change of the lanes' queues or rates on %s replaces the card's traffic classes, and "+
				"the filters that lead to them are lost: niclane rollback first", f.dev.Name)
			return
		}
		for _, leaf := range f.dev.Qdiscs {
			if leaf.Handle != "0:" && strings.HasPrefix(leaf.Parent, rootHandle) {
				f.failf("lanes", "a change of the lanes' queues on %s replaces the mqprio, and %s %s is "+
					"attached to it: "+
					"niclane rollback first",
					f.dev.Name, leaf.Type, leaf.Handle)
				return
			}
		}
	}
	f.wants = append(f.wants, want{
		Object: q,
		part:   device.PartMapper, cause: "lanes", disruptive: true,
		reason: reason,
	})
	for _, p := range pairs {
		f.want(p, device.PartMapper, "lanes", fmt.Sprintf("transmit queue %d: symmetric with its receive queue, "+
			"within its traffic class", device.QueueOf(p)))
	}
}

// pairs returns the xps_rxqs files that make the queues of the card's classes symmetric: a flow
// is sent on the transmit queue with the number of its receive queue (net/core/dev.c:
// get_xps_queue). If that queue is in another class than the packet, a hash chooses. The kernel
// clears these files when classes are made or removed, so they are set after the classes. pairs
// returns nil if another program has set such a file, because rollback could not restore it.
func (f *fit) pairs(lanes []*deviceLane) (files []device.File) {
	if ok, _ := needs("", device.CapXPSRxqs)(f.st, f.dev); !ok || !f.byCard() {
		return nil
	}
	for _, l := range lanes {
		for _, q := range l.queues {
			file := device.File{Path: fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_rxqs", f.dev.Name, q),
				Format: device.FileCPUMask}
			if f.setByOthers(file.Path) {
				f.notef("transmit queues are not symmetric within a traffic class: another program has set "+
					"%s", file.Path)
				return nil
			}
			file.Value = device.FormatMask([]int{q})
			files = append(files, file)
		}
	}
	return files
}

// setByOthers reports whether a mask file had a value other than 0 before niclane first wrote it.
func (f *fit) setByOthers(path string) bool {
	now, ok := f.st.Files[path]
	if !ok {
		return false
	}
	was := device.Object(now)
	if r, ours := f.owned[now.Key()]; ours {
		was = r.Original // nil: the queue came with niclane's channels
	}
	return was != nil && !device.Equal(was,
		device.File{Path: path, Format: device.FileCPUMask, Value: device.FormatMask(nil)})
}

// priority returns the skb->priority that niclane gives a lane's packets, written as a handle; ""
// for none.
func (f *fit) priority(l *deviceLane) string {
	switch {
	case f.byPriority():
		return fmt.Sprintf("0:%x", lanePriority(l.number))
	case len(f.wantedClasses()) > 0:
		return classID(l.minor)
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// A software mqprio (hw 0) gives each lane a traffic class, and each class its
// own transmit queues; a hash of the flow chooses among these. mqprio finds the
// class by the lowest four bits of skb->priority.

// Lanes have priorities from firstLanePriority on. Below are those that
// applications set by SO_PRIORITY without CAP_NET_ADMIN (up to 6), that the
// kernel sets by IP_TOS (net/ipv4/route.c: ip_tos2prio), and TC_PRIO_CONTROL
// (7). Further lanes get these, from 7 down to 1, if the classifier knows each
// packet's lane: it then removes them from other packets.
const (
	priorities        = 16 // TC_PRIO_MAX + 1
	firstLanePriority = 8
	ownPriorities     = priorities - firstLanePriority
)

// maxPriorityLanes returns the number of lanes that mqprio can tell apart.
func (f *fit) maxPriorityLanes() int {
	if f.byGroup() {
		return ownPriorities
	}
	return priorities - 1
}

// byPriority reports whether an mqprio maps the lanes to transmit queues.
func (f *fit) byPriority() bool { return f.uses(device.PartMapper, ByMqprioSoft) || f.byCard() }

// lanePriority returns the skb->priority of a lane's packets under mqprio.
func lanePriority(number int) int {
	if number > ownPriorities {
		return priorities - number
	}
	return firstLanePriority + number - 1
}

// priorityNumber returns the number of the lane with this mqprio priority,
// given as a handle; 0 if it is not the priority of a lane.
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

// noMqprio says why an mqprio cannot map these lanes, "" if it can.
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
		return fmt.Sprintf("it takes the root qdisc, where %s would give %s", ByHTB, strings.Join(asked(lanes), " and "))
	case f.byCard():
		return f.noClasses(lanes)
	}
	return ""
}

// wantMqprio makes the traffic classes. Class 0 is the default lane's and has
// every priority that is not a lane's.
func (f *fit) wantMqprio(lanes []*deviceLane) {
	if !f.byPriority() || len(lanes) < 2 || f.mqprioWanted() {
		return
	}
	// mqprio clears XPS when it is made and when it is removed. If XPS is
	// cleared before, rollback restores it after mqprio is gone.
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
				f.failf("lanes", "a change of the lanes' queues on %s replaces the mqprio, and %s %s is attached to it: "+
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

// pairs returns the files, by queue, that make the queues of the card's classes symmetric.
// Within a packet's class, the kernel then takes the transmit queue of the receive queue
// (net/core/dev.c: get_xps_queue), or one by hash if that queue is in another class. The
// kernel clears the files when classes are made and removed, so they are set after the
// classes. pairs returns nil if another program has set one: its value could not be
// restored.
func (f *fit) pairs(lanes []*deviceLane) (files []device.File) {
	if ok, _ := needs("", device.CapXPSRxqs)(f.st, f.dev); !ok || !f.byCard() {
		return nil
	}
	for _, l := range lanes {
		for _, q := range l.queues {
			file := device.File{Path: fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_rxqs", f.dev.Name, q),
				Format: device.FileCPUMask}
			if f.setByOthers(file.Path) {
				f.notef("transmit queues are not symmetric within a traffic class: another program has set %s", file.Path)
				return nil
			}
			file.Value = device.FormatMask([]int{q})
			files = append(files, file)
		}
	}
	return files
}

// setByOthers reports whether a mask was not empty before niclane.
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

// priority returns the skb->priority that niclane writes to a lane's packets,
// as a handle; "" for none.
func (f *fit) priority(l *deviceLane) string {
	switch {
	case f.byPriority():
		return fmt.Sprintf("0:%x", lanePriority(l.number))
	case len(f.wantedClasses()) > 0:
		return classID(l.minor)
	}
	return ""
}

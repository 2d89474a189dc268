// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// A software mqprio (hw 0) gives each lane a traffic class, and each class
// transmit queues of its own, among which a packet's flow chooses. It finds
// the class by the lowest four bits of skb->priority.

// Lanes have priorities from firstLanePriority on: what applications without
// CAP_NET_ADMIN can set by SO_PRIORITY (up to 6), what the kernel sets by
// IP_TOS (net/ipv4/route.c: ip_tos2prio) and TC_PRIO_CONTROL (7) are below. More
// lanes have those, from 7 down to 1, where the classifier sees whose a packet
// is and takes them from others'.
const (
	priorities        = 16 // TC_PRIO_MAX + 1
	firstLanePriority = 8
	ownPriorities     = priorities - firstLanePriority
)

// maxPriorityLanes is how many lanes mqprio can tell apart.
func (f *fit) maxPriorityLanes() int {
	if f.byGroup() {
		return ownPriorities
	}
	return priorities - 1
}

// byPriority reports whether an mqprio maps the lanes to transmit queues.
func (f *fit) byPriority() bool { return f.uses(device.PartMapper, ByMqprioSoft) || f.byCard() }

// lanePriority is what skb->priority is in a lane's packets under mqprio.
func lanePriority(number int) int {
	if number > ownPriorities {
		return priorities - number
	}
	return firstLanePriority + number - 1
}

// priorityNumber is the number of the lane whose priority under mqprio a handle
// is, 0 if it is none.
func priorityNumber(handle string) int {
	if strings.HasPrefix(handle, rootHandle) { // a class, as most are
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
		return fmt.Sprintf("%d lanes, and there are %d priorities that nobody else's packets have", len(lanes)-1,
			f.maxPriorityLanes())
	case len(lanes)-1 > f.maxPriorityLanes():
		return fmt.Sprintf("%d lanes, and there are %d priorities beside the default lane's", len(lanes)-1,
			f.maxPriorityLanes())
	case f.choice[device.PartBandwidth].Mechanism == "" && shaped(lanes):
		return fmt.Sprintf("it takes the root, where %s would give %s", ByHTB, strings.Join(asked(lanes), " and "))
	case f.byCard():
		return f.noClasses(lanes)
	}
	return ""
}

// wantMqprio makes the traffic classes: the default lane's is 0, and has every
// priority that is no lane's.
func (f *fit) wantMqprio(lanes []*deviceLane) {
	if !f.byPriority() || len(lanes) < 2 || f.mqprioWanted() {
		return
	}
	// It would take XPS away by itself, and its removal too. Cleared before
	// it is made, XPS comes back after it is gone.
	pairs := f.pairs(lanes)
	f.wantNoXPS("a traffic class has no XPS of others", pairs)
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
			f.failf("lanes", "the lanes' queues or rates on %s change, and for that the card's traffic classes are "+
				"made anew, without the filters that lead to them: niclane rollback first", f.dev.Name)
			return
		}
		for _, leaf := range f.dev.Qdiscs {
			if leaf.Handle != "0:" && strings.HasPrefix(leaf.Parent, rootHandle) {
				f.failf("lanes", "the lanes' queues on %s change, and an mqprio is made anew for that, with nothing "+
					"on it: %s %s hangs on it: niclane rollback first",
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

// pairs are the files by which the queues of the card's classes become
// symmetric, by queue: within a packet's class the kernel takes the transmit queue
// that goes with the receive queue (net/core/dev.c: get_xps_queue), and one by hash
// where that is another class's. It clears them when classes are made and when
// they go, so that they are set afterwards, and nothing of somebody else's is
// overwritten: it could not come back after the classes.
func (f *fit) pairs(lanes []*deviceLane) (files []device.File) {
	if ok, _ := needs("", device.CapXPSRxqs)(f.st, f.dev); !ok || !f.byCard() {
		return nil
	}
	for _, l := range lanes {
		for _, q := range l.queues {
			file := device.File{Path: fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_rxqs", f.dev.Name, q),
				Format: device.FileCPUMask}
			if f.setByOthers(file.Path) {
				f.notef("transmit queues are not symmetric within a traffic class: somebody has set %s", file.Path)
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
		was = r.Original // nil: it came with niclane's channels
	}
	return was != nil && !device.Equal(was,
		device.File{Path: path, Format: device.FileCPUMask, Value: device.FormatMask(nil)})
}

// priority is what niclane writes to skb->priority of a lane's packets, as a
// handle; "" for nothing.
func (f *fit) priority(l *deviceLane) string {
	switch {
	case f.byPriority():
		return fmt.Sprintf("0:%x", lanePriority(l.number))
	case len(f.wantedClasses()) > 0:
		return classID(l.minor)
	}
	return ""
}

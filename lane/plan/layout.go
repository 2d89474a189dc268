// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A deviceLane is a lane on one device, with its queues and processors there.
type deviceLane struct {
	*intent.Lane
	// number is the lane's number, which is also the number of its RSS context and of its entry in
	// the XDP program; 0 for the default lane. minor is the minor number of its HTB class,
	// calculated from number.
	number int
	queues []int
	cpus   []int
	minor  uint16
	// each is the number of queues that each of the driver's pollers polls; 0 if the driver does not
	// poll the lane's queues.
	each int
	// sharing is the reason why the processors of the lane's queues are not the lane's own, "" if
	// they are (fit.sharing).
	sharing string
	// isDefault marks the default lane.
	isDefault bool
}

// cpuOf returns the processor of the lane's i-th queue. Queues are distributed over the lane's
// pollers, and pollers over its processors.
func (p *deviceLane) cpuOf(i int) int { return p.cpus[p.pollerOf(i)%len(p.cpus)] }

// pollerOf returns the number, from 0, of the poller of the lane's i-th queue.
func (p *deviceLane) pollerOf(i int) int {
	if p.each > 0 {
		return i / p.each
	}
	pollers := p.Poller.Count
	if pollers == 0 || pollers > len(p.queues) {
		pollers = len(p.queues)
	}
	return i * pollers / len(p.queues)
}

// fifo returns the SCHED_FIFO priority of a lane's polling threads if the file gives none. It is
// above all threads that are not real-time and below the kernel's interrupt threads (50). A
// better rank gets a higher priority. 0 means SCHED_OTHER.
func (p *deviceLane) fifo() int {
	if p.isDefault {
		return 0
	}
	return 48 - rank(p)
}

// scheduling returns policy, priority and nice value of the lane's polling threads. how describes
// them as text.
func (p *deviceLane) scheduling() (policy string, priority, nice int, how string) {
	priority = p.Poller.Priority
	if p.Poller.Policy == intent.PolicyRank {
		priority = p.fifo()
	}
	if priority > 0 {
		return "fifo", priority, 0, fmt.Sprintf("SCHED_FIFO %d", priority)
	}
	return "other", 0, p.Poller.Nice, fmt.Sprintf("nice %d", p.Poller.Nice)
}

func rank(p *deviceLane) int {
	if p.Rank != 0 {
		return p.Rank
	}
	if p.isDefault {
		return 7
	}
	return 1
}

// layout gives each lane its queues: the default lane the first ones, the other lanes the next
// ones in the order of the file. total is the number of queues that the device must have.
func (f *fit) layout() (lanes []*deviceLane, total int) {
	sum := f.sum()
	have := f.queuesBefore()
	most := max(have, f.maxQueues())
	first := f.in.Default.Queues
	if first == 0 {
		if first = have - sum; first < 1 && f.reserves() { // the queues that the lanes leave
			first = min(have, most-sum) // the lanes then need more channels
		}
	}
	apart := f.uses(device.PartMapper, ByQueueMapping) || f.byPriority()
	if !f.reserves() && (first < 1 || first+sum > have || !apart) {
		return f.sharedLayout(have), have
	}
	if first < 1 || first+sum > most {
		f.failf(lanePath(&f.in.Default, "queues"),
			"%d queues asked for (%s), %s has %d; the default lane needs at least 1%s",
			max(first, 1)+sum, f.sumText(max(first, 1)), f.dev.Name, most, f.sharedHint(most))
		return nil, 0
	}
	def := f.in.Default
	lanes = append(lanes, &deviceLane{Lane: &def, queues: span(0, first), minor: defaultMinor, isDefault: true})
	next := first
	for i := range f.in.Lanes {
		l := &f.in.Lanes[i]
		lanes = append(lanes, &deviceLane{
			Lane: l, queues: span(next, l.Queues),
		})
		next += l.Queues
	}
	f.number(lanes[1:])
	if f.byCard() && f.limits().Resizes {
		return lanes, next // the driver makes exactly the queues of the classes
	}
	if !f.reserves() {
		return lanes, min(f.dev.RxQueues, f.dev.TxQueues) // no channel is added
	}
	return lanes, max(next, min(f.dev.RxQueues, f.dev.TxQueues))
}

// sharedHint returns text for the end of an error message about too few queues: what lanes can have on
// a device with a single queue. It is "" if the device has more.
func (f *fit) sharedHint(most int) string {
	if most > 1 || f.in.Group.Force[string(device.PartQueueSet)] != "" {
		return ""
	}
	return fmt.Sprintf("; for lanes on transmit alone, without queues of their own: force: {%s: %s}",
		device.PartQueueSet, ByShared)
}

// sharedLayout gives every lane all queues. It is used if lanes have no receive queues of their
// own and if there are too few transmit queues, or nothing can choose among them.
func (f *fit) sharedLayout(have int) []*deviceLane {
	f.sharedQueues = true
	def := f.in.Default
	lanes := []*deviceLane{{Lane: &def, queues: span(0, have), minor: defaultMinor, isDefault: true}}
	for i := range f.in.Lanes {
		l := &f.in.Lanes[i]
		if l.Queues > have {
			f.failf(lanePath(l, "queues"), "%d queues asked for, %s has %s", l.Queues, f.dev.Name, queuesText(f.dev))
		}
		lanes = append(lanes, &deviceLane{Lane: l, queues: span(0, have)})
	}
	f.number(lanes[1:])
	return lanes
}

// queuesText returns the number of a device's queues as text.
func queuesText(d *device.Device) string {
	if d.RxQueues == d.TxQueues {
		return strconv.Itoa(d.RxQueues)
	}
	return fmt.Sprintf("%d to receive and %d to transmit", d.RxQueues, d.TxQueues)
}

// noQueues returns the reason why the classifier cannot choose among transmit queues: there are
// too few for each lane to have its own. It returns "" if the classifier can.
func (f *fit) noQueues() string {
	if !f.sharedQueues {
		return ""
	}
	return fmt.Sprintf("the queues asked for are %s, but %s has %d to transmit",
		f.sumText(max(f.in.Default.Queues, 1)), f.dev.Name, f.dev.TxQueues)
}

// queuesBefore returns the number of queues before niclane. So the default lane's "all the rest"
// does not grow by channels that niclane added. It counts queue pairs if lanes have their own
// receive queues, otherwise transmit queues.
func (f *fit) queuesBefore() int {
	rx, tx := f.counts()
	if !f.reserves() {
		return tx
	}
	return min(rx, tx)
}

// counts returns the numbers of receive and transmit queues that the device had before niclane.
func (f *fit) counts() (rx, tx int) {
	have := f.dev.TxQueues - f.dev.Leaves()
	if f.dev.Channels == nil {
		return f.dev.RxQueues, have
	}
	c := f.base(*f.dev.Channels).(device.Channels)
	// A driver may also count the queues that its XDP program uses, as virtio_net does
	// (virtnet_set_queues).
	return c.RX + c.Combined, min(c.TX+c.Combined, have)
}

// unpaired returns the queues of a device that has more queues in one direction than pairs. total
// is the number of pairs. These queues belong to the default lane.
func (f *fit) unpaired(total int) (rx, tx []int) {
	if f.byCard() || !f.reserves() {
		return nil, nil
	}
	nrx, ntx := f.counts()
	return span(total, max(nrx-total, 0)), span(total, max(ntx-total, 0))
}

// sum returns the number of queues that the lanes ask for, without the default lane.
func (f *fit) sum() (n int) {
	for i := range f.in.Lanes {
		n += f.in.Lanes[i].Queues
	}
	return n
}

func (f *fit) sumText(first int) string {
	s := "default " + strconv.Itoa(first)
	for i := range f.in.Lanes {
		s += fmt.Sprintf(", %s %d", f.in.Lanes[i].Name, f.in.Lanes[i].Queues)
	}
	return s
}

// maxQueues returns how many queues the device can have. It counts channels of the kind that the
// device had before niclane, combined or separate: niclane never changes the kind. The driver's
// maxima of the two kinds are alternatives and do not add up (bnxt, ionic, nfp, fbnic: max_rx,
// max_tx and max_combined each count all queues).
func (f *fit) maxQueues() int {
	m := f.dev.MaxChannels
	if m == nil || f.dev.Channels == nil {
		return min(f.dev.RxQueues, f.dev.TxQueues)
	}
	now := f.base(*f.dev.Channels).(device.Channels)
	if now.Combined > 0 {
		return min(now.RX, now.TX) + m.Combined
	}
	return min(m.RX, m.TX)
}

func span(first, n int) []int {
	qs := make([]int, n)
	for i := range qs {
		qs[i] = first + i
	}
	return qs
}

// processors gives each lane its processors: those that the file names, which must be online,
// otherwise a choice by NUMA policy. As long as there are enough processors, automatic choices of
// two lanes differ, and none has a processor that the file names for the default lane or for a
// control group.
func (f *fit) processors(lanes []*deviceLane) {
	online := f.st.OnlineCPUs()
	var taken, used []int // by lanes' queues; by the default lane or by an application
	for _, l := range lanes {
		for _, id := range l.CPUs {
			if !slices.Contains(online, id) {
				f.failf(lanePath(l.Lane, "cpus"), "processor %d is not online (online: %s)", id,
					device.FormatCPUList(online))
			}
		}
		if l.isDefault {
			used = append(used, l.CPUs...)
			continue
		}
		taken = append(taken, l.CPUs...)
		for _, m := range l.Members {
			used = append(used, m.CgroupCPUs...)
		}
	}
	for _, l := range lanes {
		if len(l.CPUs) > 0 {
			l.cpus = l.CPUs
			continue
		}
		pool := f.pool(l)
		if !l.isDefault && !f.reserves() && len(pool) > 1 {
			pool = pool[1:] // one processor stays free for receiving
		}
		free := slices.DeleteFunc(slices.Clone(pool), func(id int) bool { return slices.Contains(taken, id) })
		if len(free) == 0 {
			free = pool
		}
		apart := without(free, used)
		free = append(apart, without(free, apart)...)
		if l.isDefault {
			l.cpus = pool // it has no reserved processors and may run on all of them
			continue
		}
		n := min(l.Queues, len(free))
		if l.Poller.Count > 0 {
			n = min(l.Poller.Count, len(free))
		}
		// Polling threads pay on processors that nothing else uses.
		if own, _ := f.mayOwn(l, free); f.reserves() && len(own) >= n && l.Poller.Kind != intent.PollerInterrupt &&
			l.Poller.Kind != intent.PollerApplication {
			free = own
		}
		l.cpus = slices.Sorted(slices.Values(free[:n]))
		taken = append(taken, l.cpus...)
	}
}

// keptFree returns text about the online processors that the host keeps free of work. Automatic
// choices skip these processors.
func (f *fit) keptFree() (words []string) {
	by := map[string][]int{}
	for _, c := range f.st.CPUs {
		if c.Online && c.Kept != "" {
			by[c.Kept] = append(by[c.Kept], c.ID)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(by)) {
		words = append(words, fmt.Sprintf("%s (%s)", device.FormatCPUList(by[why]), why))
	}
	return words
}

// noteKept adds a note with the processors that automatic choices skipped, and with the lanes
// that got such processors because there were no others.
func (f *fit) noteKept(lanes []*deviceLane) {
	words := f.keptFree()
	var auto, forced []string
	for _, l := range lanes[min(1, len(lanes)):] {
		if len(l.CPUs) > 0 {
			continue
		}
		auto = append(auto, l.Name)
		if slices.ContainsFunc(f.st.CPUs,
			func(c device.CPU) bool { return c.Kept != "" && slices.Contains(l.cpus, c.ID) }) {
			forced = append(forced, l.Name)
		}
	}
	switch {
	case len(words) == 0 || len(auto) == 0:
	case len(forced) > 0:
		f.notef("lane %s has processors that the host keeps free of work, %s: there are no others; name cpus to choose",
			strings.Join(forced, ", "), strings.Join(words, ", "))
	default:
		f.notef("cpus: auto leaves out processors that the host keeps free of work, %s; name them in cpus to use them",
			strings.Join(words, ", "))
	}
}

// pool returns the online processors that a lane's NUMA policy allows. It skips processors that
// the host keeps free of work, unless there are no others.
func (f *fit) pool(l *deviceLane) []int {
	policy := l.NUMA
	var ids, kept []int
	for _, c := range f.st.CPUs {
		if !c.Online {
			continue
		}
		local := f.dev.Node < 0 || c.Node == f.dev.Node
		ok := true
		switch policy {
		case "", intent.NUMAAll:
		case intent.NUMALocal:
			ok = local
		case intent.NUMARemote:
			ok = !local
		default:
			ok = strconv.Itoa(c.Node) == string(policy)
		}
		switch {
		case ok && c.Kept == "":
			ids = append(ids, c.ID)
		case ok:
			kept = append(kept, c.ID)
		}
	}
	if len(ids) == 0 {
		ids = kept
	}
	if len(ids) == 0 {
		f.failf(lanePath(l.Lane, "numa"), "no online processor matches %q (%s is on node %d)", policy, f.dev.Name,
			f.dev.Node)
		return f.st.OnlineCPUs()
	}
	return ids
}

// nodesOf returns the NUMA nodes of the processors, ascending.
func nodesOf(st *device.State, cpus []int) []int {
	var nodes []int
	for _, c := range st.CPUs {
		if slices.Contains(cpus, c.ID) && !slices.Contains(nodes, max(c.Node, 0)) {
			nodes = append(nodes, max(c.Node, 0))
		}
	}
	slices.Sort(nodes)
	return nodes
}

func lanePath(l *intent.Lane, key string) string { return l.Path + "." + key }

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// shaped reports whether the file asks for a guarantee, a ceiling or a rank.
func shaped(lanes []*deviceLane) bool {
	for _, l := range lanes {
		if !l.Bandwidth.Guarantee.IsZero() || !l.Bandwidth.Ceiling.IsZero() || l.Rank != 0 {
			return true
		}
	}
	return false
}

// rootRate returns the rate that all lanes of a link share: 2 % below the link's rate. Packets
// then queue in the qdisc, where the lane's rank decides, and not in the card.
func rootRate(link uint64) uint64 { return link / 100 * 98 }

// wireOverhead is the number of bytes of a frame that only the wire has: preamble, frame check and gap
// (IEEE 802.3). HTB counts it once for a packet that the card segments: the 2 % cover the other
// segments down to 1200 bytes of the wire each. With smaller ones (a small MSS), packets can wait in the card.
const wireOverhead = 24

// asked returns the kinds of bandwidth (guarantee, ceiling, rank) that the lanes ask for.
func asked(lanes []*deviceLane) (out []string) {
	for _, l := range lanes {
		for what, is := range map[string]bool{
			givesGuarantee: !l.Bandwidth.Guarantee.IsZero(), givesCeiling: !l.Bandwidth.Ceiling.IsZero(),
			givesRank: l.Rank != 0,
		} {
			if is && !slices.Contains(out, what) {
				out = append(out, what)
			}
		}
	}
	slices.Sort(out)
	return out
}

// tooLittle returns the bandwidth mechanisms that do not give all kinds of bandwidth that the
// lanes ask for. The map's key is the mechanism's name, its value the reason.
func (f *fit) tooLittle(lanes []*deviceLane) map[string]string {
	why := map[string]string{}
	for _, e := range catalogue() {
		if e.part != device.PartBandwidth {
			continue
		}
		for _, c := range e.candidates {
			gives := slices.Clone(c.gives)
			for capability, what := range c.more {
				if ok, _ := needs("", capability)(f.st, f.dev); ok {
					gives = append(gives, what)
				}
			}
			missing := slices.DeleteFunc(asked(lanes), func(what string) bool { return slices.Contains(gives, what) })
			if len(missing) > 0 {
				why[c.name] = fmt.Sprintf("gives %s, but the lanes ask for %s", strings.Join(gives, " and "),
					strings.Join(missing, " and "))
			}
		}
	}
	return why
}

// wantBandwidth shapes the packets that the lanes send. total is the number of the device's queues.
func (f *fit) wantBandwidth(lanes []*deviceLane, total int) {
	if !shaped(lanes) {
		return
	}
	switch f.choice[device.PartBandwidth].Mechanism {
	case ByEDT:
		f.wantGSOLimit()
		f.wantFQ(total)
	case ByHTB:
		f.wantHTB(lanes)
	case ByHTBOffload:
		f.wantOffload(lanes)
	case ByNetShaper:
		f.wantShapers(lanes)
	case ByTxMaxrate:
		f.wantMaxrate(lanes)
	case ByMqTBF:
		f.wantMqTBF(lanes)
	}
}

// wantMaxrate sets tx_maxrate of each queue of a lane with a ceiling, so that the card limits it.
// The unit is Mbit/s (Documentation/ABI/testing/sysfs-class-net-queues).
func (f *fit) wantMaxrate(lanes []*deviceLane) {
	for _, l := range lanes {
		rate := f.queueCeiling(l)
		for _, q := range l.queues {
			if rate > 0 {
				f.want(device.File{
					Path:   fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/tx_maxrate", f.dev.Name, q),
					Format: device.FileText, Value: fmt.Sprint(max(rate/1e6, 1)),
				}, device.PartBandwidth, lanePath(l.Lane, "ceiling"),
					fmt.Sprintf("transmit queue %d of lane %s: at most %s", q, l.Name, device.RateText(rate)))
			}
		}
	}
}

// wantShapers makes shapers in the card. Each queue gets an equal share of its lane's guarantee
// and ceiling.
func (f *fit) wantShapers(lanes []*deviceLane) {
	for _, l := range lanes {
		least, most := f.guarantee(l)/uint64(len(l.queues)), f.queueCeiling(l)
		if least == 0 && most == 0 {
			continue
		}
		var says []string
		if least > 0 {
			says = append(says, "at least "+device.RateText(least))
		}
		if most > 0 {
			says = append(says, "at most "+device.RateText(most))
		}
		for _, q := range l.queues {
			s := device.Shaper{Dev: f.dev.Name, Queue: q, Min: least, Max: most}
			if now, there := f.present[s.Key()]; there {
				if _, ours := f.owned[s.Key()]; !ours {
					f.failf("globals.dev", "transmit queue %d of %s has a shaper that niclane did not make (%s)", q,
						f.dev.Name, Brief(now))
					continue
				}
			}
			f.want(s, device.PartBandwidth, l.Path,
				fmt.Sprintf("transmit queue %d of lane %s: %s", q, l.Name, strings.Join(says, ", ")))
		}
	}
}

// queueCeiling returns an equal share of the lane's ceiling for each of its queues, 0 for none.
func (f *fit) queueCeiling(l *deviceLane) uint64 {
	return f.ceiling(l) / uint64(len(l.queues))
}

// wantMqTBF gives each transmit queue its own qdisc. If a lane has a ceiling, the qdiscs of its
// queues are token buckets (tbf).
func (f *fit) wantMqTBF(lanes []*deviceLane) {
	if !f.byPriority() { // an mqprio has a class for each queue already
		f.wants = append(f.wants, want{
			Object: device.Qdisc{Dev: f.dev.Name, Parent: "root", Type: "mq", Handle: rootHandle},
			part:   device.PartBandwidth, cause: "lanes", disruptive: true,
			reason: "a qdisc of its own for each transmit queue",
		})
	}
	for _, l := range lanes {
		rate := f.queueCeiling(l)
		if rate == 0 {
			continue
		}
		burst := f.burst(rate)
		for _, q := range l.queues {
			f.want(device.Qdisc{
				Dev: f.dev.Name, Parent: fmt.Sprintf("%s%x", rootHandle, q+1), Type: "tbf",
				Handle: fmt.Sprintf("%x:", firstLeaf+q),
				Rate:   rate, Burst: burst, Limit: burst + uint32(min(rate/8/50, 1<<26)), // 20 ms
			}, device.PartBandwidth, lanePath(l.Lane, "ceiling"),
				fmt.Sprintf("transmit queue %d of lane %s: at most %s", q, l.Name, device.RateText(rate)))
		}
	}
}

// Major handle numbers of the qdiscs below the root; each adds the class or queue number. Each
// type of qdisc has its own range, because the kernel replaces a qdisc by another type only under
// another handle.
const (
	firstLeaf = 0x100
	firstCake = 0x1100
	firstFIFO = 0x2100
)

// wantFair makes a qdisc that divides the share of a shared lane or of the default lane among its
// flows. Without it, an HTB class has one FIFO (htb_change_class, sch_htb.c). In the default
// lane's FIFO, all other traffic would wait behind bulk traffic. In a shared lane, a member with
// many connections must not get more than the others: cake ensures this if members have their own
// addresses, as pods do.
func (f *fit) wantFair(l *deviceLane) {
	cause, flows := lanePath(l.Lane, "mode"), "the flows of shared lane "+l.Name
	if l.isDefault {
		cause, flows = l.Path, "the flows of lane "+l.Name
	} else if l.Mode != intent.Shared {
		f.wantFIFO(l)
		return
	}
	q := device.Qdisc{Dev: f.dev.Name, Parent: classID(l.minor), Type: "fq_codel",
		Handle: fmt.Sprintf("%x:", firstLeaf+int(l.minor))}
	if ok, _ := needs("", device.CapCake)(f.st, f.dev); ok && !l.isDefault {
		q.Type, q.Handle, q.Cake = "cake", fmt.Sprintf("%x:", firstCake+int(l.minor)), device.CakeByHost
		f.want(q, device.PartBandwidth, cause,
			"fair queueing among the addresses of shared lane "+l.Name+", and among the flows of each")
		return
	}
	if ok, why := needs("", device.CapFQCodel)(f.st, f.dev); !ok {
		f.wantFIFO(l)
		f.notef("%s share one FIFO: %s", flows, why)
		return
	}
	f.want(q, device.PartBandwidth, cause, "fair queueing among "+flows)
}

// fifoLimit is the smallest length of a lane's FIFO in packets: the kernel's
// DEFAULT_TX_QUEUE_LEN.
const fifoLimit = 1000

// wantFIFO makes a FIFO in a lane's class if the kernel's own would be too short. The kernel's
// FIFO gets its length from the device's txqueuelen when the class is made; with length 0, it
// drops every packet (net/sched/sch_fifo.c: __fifo_init). If niclane has made a FIFO earlier, it
// stays, because attaching a qdisc can change txqueuelen (net/sched/sch_api.c: qdisc_create).
func (f *fit) wantFIFO(l *deviceLane) {
	q := device.Qdisc{Dev: f.dev.Name, Parent: classID(l.minor), Type: "pfifo",
		Handle: fmt.Sprintf("%x:", firstFIFO+int(l.minor)), Limit: fifoLimit}
	why := "its length stays as it is"
	if n := f.dev.TxQueueLen; n != nil && *n < fifoLimit {
		why = fmt.Sprintf("%s's txqueuelen would limit the kernel's own FIFO to %d packets", f.dev.Name, *n)
	} else if r, ours := f.owned[q.Key()]; !ours || !device.Equal(r.Last, q) {
		return
	}
	f.want(q, device.PartBandwidth, l.Path, fmt.Sprintf("lane %s: a FIFO of %d packets: %s", l.Name, fifoLimit, why))
}

// wantTxQueueLen changes a txqueuelen of 0 to the kernel's default. The kernel would do so by
// itself with the first qdisc of a device without a queue (net/sched/sch_api.c: qdisc_create). As
// this is a step of the plan, rollback restores the 0.
func (f *fit) wantTxQueueLen() {
	file := device.File{Path: "/sys/class/net/" + f.dev.Name + "/tx_queue_len", Format: device.FileText,
		Value: strconv.Itoa(fifoLimit)}
	_, ours := f.owned[file.Key()]
	now, _ := f.present[file.Key()].(device.File)
	first := slices.IndexFunc(f.wants, func(w want) bool {
		q, ok := w.Object.(device.Qdisc)
		return ok && !w.absent && q.Dev == f.dev.Name && (ours || f.present[q.Key()] == nil)
	})
	if first >= 0 && (ours || now.Value == "0") {
		f.wants = slices.Insert(f.wants, first,
			want{Object: file, part: f.wants[first].part, cause: f.wants[first].cause,
				reason: "the kernel changes a txqueuelen of 0 when a device gets its first qdisc"})
	}
}

// wantHTB makes one HTB class per lane under a common root class.
func (f *fit) wantHTB(lanes []*deviceLane) {
	root := rootRate(f.link)
	f.wantRoot(device.Qdisc{Dev: f.dev.Name, Parent: "root", Type: "htb", Handle: rootHandle,
		DefaultClass: defaultMinor},
		"one queue for the link, in front of the card's")
	whole := f.class(rootClass, rootHandle, root, root, 0)
	whole.Overhead = wireOverhead
	f.want(whole, device.PartBandwidth, "globals.link-rate",
		fmt.Sprintf("98 %% of the link's %s, so that queues build here", device.RateText(f.link)))
	promised := uint64(0)
	for _, l := range lanes[1:] {
		promised += f.guarantee(l)
	}
	for _, l := range lanes {
		guarantee := f.guarantee(l)
		if guarantee == 0 && l.isDefault && root > promised {
			guarantee = root - promised // the rate that no lane is guaranteed
		}
		// HTB needs a rate for every class. A lane without a guarantee gets 1/1000 of the link, which
		// is negligible.
		guarantee = max(guarantee, f.link/1000)
		ceiling := f.ceiling(l)
		if ceiling == 0 || ceiling > root {
			ceiling = root
		}
		f.want(f.class(classID(l.minor), rootClass, guarantee, ceiling, uint32(rank(l)-1)),
			device.PartBandwidth, l.Path,
			fmt.Sprintf("lane %s: %s guaranteed, at most %s, rank %d", l.Name, device.RateText(guarantee),
				device.RateText(ceiling), rank(l)))
		f.wantFair(l)
	}
	f.noteUnguaranteed(lanes)
}

// noteUnguaranteed adds a note about lanes without a guarantee. The default lane has the rate
// that is guaranteed to no other lane. If it fills the link with that, such lanes keep little:
// HTB serves classes within their rate before classes that borrow, regardless of rank
// (net/sched/sch_htb.c: htb_dequeue_tree).
func (f *fit) noteUnguaranteed(lanes []*deviceLane) {
	if f.guarantee(lanes[0]) > 0 {
		return
	}
	var names []string
	for _, l := range lanes[1:] {
		if f.guarantee(l) == 0 {
			names = append(names, l.Name)
		}
	}
	if len(names) > 0 {
		f.notef("without a guarantee (%s), a lane keeps %s of a full link, at any rank: rank orders only the rate "+
			"beyond the guarantees; guarantee: 10%% gives a lane more", strings.Join(names, ", "+
			""), device.RateText(f.link/1000))
	}
}

func classID(minor uint16) string { return fmt.Sprintf("1:%x", minor) }

// burst returns the bytes that the rate sends in 500 µs, at least two frames and at most 64 KiB.
// With a smaller burst, a lane waits less, but the qdisc arms more timers. Arming one takes 11 µs
// in a virtual machine: with bursts of 25 µs, that took 15 % of a processor at 1 Gbit/s.
func (f *fit) burst(rate uint64) uint32 {
	return max(uint32(min(rate/8/2000, 64<<10)), 2*uint32(f.dev.MTU+14))
}

// class returns an HTB class. Its quantum makes classes share unused bandwidth in proportion to
// their guarantees.
func (f *fit) class(id, parent string, rate, ceil uint64, prio uint32) device.Class {
	frame := uint32(f.dev.MTU + 14)
	quantum := uint32(min(max(rate/8/1000, uint64(frame)), 60_000))
	return device.Class{
		Dev: f.dev.Name, ID: id, Parent: parent, Rate: rate, Ceil: ceil,
		Burst: f.burst(rate), CBurst: f.burst(ceil), Quantum: quantum, Prio: prio,
	}
}

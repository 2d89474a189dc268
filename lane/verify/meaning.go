// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// named returns "lane x" for x, and "no lane" for "" and LaneUnshaped.
func named(lane string) string {
	switch lane {
	case "":
		return "no lane"
	case LaneUnshaped:
		return "no lane, to an unshaped network"
	}
	return "lane " + lane
}

// meaning says what a difference means for the lane. The object o should have the value want and
// now has the value found; nil means absent.
func (c *check) meaning(o, want, found device.Object, lane string) string {
	switch o := o.(type) {
	case device.File:
		return c.fileMeaning(o, want, found)
	case device.Qdisc:
		return qdiscMeaning(o, found)
	case device.Class:
		return classMeaning(o, found, lane)
	case device.Flower:
		if now, ok := found.(device.Flower); ok {
			return fmt.Sprintf("packets of %s arrive in traffic class %d of the card", o.Match, now.Class)
		}
		return "packets of " + o.Match.String() + " arrive as default traffic"
	case device.Filter:
		return filterMeaning(found)
	case device.FilterEntry:
		return c.entryMeaning(o, found)
	case device.FilterDefault:
		now, ok := found.(device.FilterDefault)
		if len(o.Lanes) > 0 && !slices.Equal(now.Lanes, o.Lanes) {
			return "packets of no lane with the priority of a lane (SO_PRIORITY) are sent by that lane's " +
				"transmit queues"
		}
		if ok {
			return fmt.Sprintf("packets of no lane are sent by transmit queues %s",
				c.ownedQueues(c.deviceOf(o), now.Queues))
		}
		return "packets of no lane are sent by any transmit queue, the lanes' included"
	case device.FilterLink:
		if found == nil {
			return "packets leave at once: no guarantee, ceiling or rank holds on transmit"
		}
		return "the lanes' rates do not add up to the link's, or their packets are dropped or marked too early or " +
			"too late"
	case device.FilterShare:
		return shareMeaning(o, found, lane)
	case device.Tunnels:
		return "packets of the lanes in these tunnels are not recognised: the classifier sends them, or the XDP " +
			"program hands them over, as the default lane's"
	case device.Shaper:
		if found == nil {
			return fmt.Sprintf("the card neither keeps the lane's guarantee nor its ceiling on transmit queue %d",
				o.Queue)
		}
		return fmt.Sprintf("on transmit queue %d the card keeps other rates than the lane's", o.Queue)
	case device.DriverParam:
		return "the driver polls the queues of " + named(lane) + " in another way than asked for"
	case device.PrivFlag:
		return "the driver ends busy polls by another rule than asked for"
	case device.Affinity:
		now, ok := found.(device.Affinity)
		if !ok {
			return fmt.Sprintf("no interrupt is known to serve queue %d (%s) any more", o.Queue,
				named(c.ownerOf(o.Dev, o.Queue)))
		}
		return fmt.Sprintf("the interrupt of queue %d (%s) moved: it is handled on processors %s", o.Queue,
			named(c.ownerOf(o.Dev, o.Queue)), strings.Join(now.CPUs, " and "))
	case device.CgroupPriority:
		if now, ok := found.(device.CgroupPriority); ok {
			return "packets of " + o.Cgroup + " are sent with priority " + now.Priority
		}
		return "packets of " + o.Cgroup + " are sent as the default lane's"
	case device.CgroupClass:
		if now, ok := found.(device.CgroupClass); ok {
			return "connections of " + o.Cgroup + " are sent in class " + now.Priority
		}
		return "connections of " + o.Cgroup + " are sent as the default lane's"
	case device.RSSTable:
		return c.tableMeaning(o, want, found, lane)
	case device.Rule:
		return c.ruleMeaning(o, found)
	case device.NAPIConfig:
		return napiMeaning(o, want, found, lane)
	case device.Thread:
		return threadMeaning(o, want, found, lane)
	case device.Poller:
		return pollerMeaning(o, found, lane)
	case device.XDP, device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
		return xdpMeaning(o, found, lane)
	case device.Feature:
		return featureMeaning(o)
	case device.Channels:
		return "the number of queues is not what the lanes were laid out for"
	case device.Coalesce:
		return "interrupts come earlier or later than asked for: latency and processor time of " + named(lane) +
			" change"
	case device.GSOLimit:
		return "a packet that is sent whole takes the link for longer or shorter than asked for: that long, a lane's " +
			"packet can wait behind it"
	case device.Ring:
		return "the descriptor rings hold another number of packets: bursts are dropped earlier, or wait longer"
	}
	return "not as niclane left it"
}

func qdiscMeaning(o device.Qdisc, found device.Object) string {
	what := "is gone"
	if found != nil {
		what = "was replaced or changed"
	}
	switch {
	case o.Parent == "clsact":
		return "the classifier's hook " + what +
			": on transmit nothing distinguishes the lanes' packets from others, " +
			"and all leave in the default lane's class"
	case o.Parent == "root" && o.Type == "mqprio":
		return "the lanes' traffic classes are gone, or have other queues: their packets leave by other queues, " +
			"and other packets by theirs"
	case o.Parent == "root" && o.Offload:
		return "the lanes' qdisc " + what + ", and the card's classes are gone with it" +
			": no guarantee or ceiling holds, and lanes leave by any transmit queue"
	case o.Parent == "root" && o.Type == "mq":
		return "the lanes' qdisc " + what + ": no guarantee, ceiling or rank holds on transmit"
	case o.Parent == "root":
		return "the lanes' qdisc " + what + ": no guarantee, ceiling or rank holds on transmit, all lanes wait in " +
			"one queue"
	}
	switch o.Type {
	case "cake":
		return "the qdisc that shares a lane among its members " + what + ": one member can take all of it"
	case "fq":
		if now, ok := found.(device.Qdisc); ok && now.FQ != "" {
			return "a qdisc of a transmit queue drops, delays or marks packets by settings of its own: " + now.FQ
		}
		return "the qdisc of a transmit queue " + what + ": its packets do not wait for their departure times, so " +
			"that no ceiling or rank holds on it"
	case "fq_codel", "sfq":
		return "the qdisc that shares a lane among its flows " + what + ": one flow can take all of it"
	case "tbf":
		return "the limit of a transmit queue " + what + ": the lane's ceiling does not hold"
	}
	return "a qdisc of a lane's class " + what + ": the lane's packets wait in another queue"
}

func shareMeaning(o device.FilterShare, found device.Object, lane string) string {
	now, ok := found.(device.FilterShare)
	if !ok {
		return "packets of " + named(lane) + " leave at once: neither its guarantee, ceiling nor rank holds, and the " +
			"other lanes do not know of them"
	}
	var changed []string
	for what, differs := range map[string]bool{
		"guarantee": now.Guarantee != o.Guarantee || now.GuaranteeBurst != o.GuaranteeBurst,
		"ceiling":   now.Ceiling != o.Ceiling || now.CeilingBurst != o.CeilingBurst,
		"rank":      now.Rank != o.Rank,
		"fairness":  now.Fair != o.Fair || now.Flow != o.Flow || now.Part != o.Part || now.Lanes != o.Lanes,
	} {
		if differs {
			changed = append(changed, what)
		}
	}
	slices.Sort(changed)
	return "on transmit the " + strings.Join(changed, ", ") + " of " + named(lane) + " is not what was promised"
}

func classMeaning(o device.Class, found device.Object, lane string) string {
	now, ok := found.(device.Class)
	switch {
	case lane == "" && !ok:
		return "the class that shares out the link is gone: no guarantee, ceiling or rank holds on transmit"
	case lane == "":
		return "the class that shares out the link was changed: the lanes' guarantees and ceilings do not add up to it"
	}
	if !ok {
		return "the lane has no class: its packets are sent as the default lane's, without its guarantee, ceiling " +
			"and rank"
	}
	var changed []string
	add := func(differs bool, what string) {
		if differs {
			changed = append(changed, what)
		}
	}
	add(now.Rate != o.Rate, "guarantee")
	add(now.Ceil != o.Ceil, "ceiling")
	add(now.Prio != o.Prio, "rank")
	add(now.Parent != o.Parent, "place below the link's class")
	if len(changed) == 0 {
		changed = []string{"burst"}
	}
	return "on transmit the lane's " + strings.Join(changed, ", ") + " is not what was promised"
}

func filterMeaning(found device.Object) string {
	what := "the classifier is detached"
	if found != nil {
		what = "another program is in the classifier's place"
	}
	return what + ": on transmit nothing distinguishes the lanes' packets from others, and all leave as the " +
		"default lane's"
}

func (c *check) entryMeaning(o device.FilterEntry, found device.Object) string {
	packets := "on transmit packets of " + o.Match.String()
	now, ok := found.(device.FilterEntry)
	switch {
	case o.Unshaped():
		return "packets to " + o.Match.Remote + " leave in the lane of their flow, with its rate"
	case !ok && o.DSCP != "":
		return packets + " leave as the default lane's, and with the DSCP of their socket"
	case !ok && o.PCP != "":
		return packets + " leave as the default lane's, and with the PCP of their VLAN device"
	case !ok:
		return packets + " leave as the default lane's"
	case now.Priority != o.Priority:
		if strings.HasPrefix(now.Priority, "0:") {
			return packets + " leave with priority " + now.Priority + ", in another traffic class"
		}
		return packets + " leave in class " + now.Priority + " (" + named(c.classLane(c.deviceOf(o), now.Priority)) +
			")"
	}
	if now.DSCP != o.DSCP {
		if now.DSCP == "" {
			return packets + " leave with the DSCP of their socket"
		}
		return packets + " leave with DSCP " + now.DSCP
	}
	if now.PCP != o.PCP {
		if now.PCP == "" {
			return packets + " leave with the PCP of their VLAN device"
		}
		return packets + " leave with PCP " + now.PCP
	}
	if len(now.Queues) == 0 {
		return packets + " leave by any transmit queue"
	}
	return packets + " leave by transmit queues " + c.ownedQueues(c.deviceOf(o), now.Queues)
}

func (c *check) ruleMeaning(o device.Rule, found device.Object) string {
	packets := "packets of " + o.Match.String() + " arrive "
	now, ok := found.(device.Rule)
	if !ok {
		return packets + "as default traffic, in the default lane's queues"
	}
	return packets + "in the queues of " + named(c.target(now))
}

func (c *check) tableMeaning(o device.RSSTable, want, found device.Object, lane string) string {
	now, ok := found.(device.RSSTable)
	if !ok {
		return "the lane's queue set is gone: its packets go where the default table sends them"
	}
	traffic := "packets of " + named(lane)
	if o.Context == 0 {
		traffic = "packets that no rule matches"
	}
	was, _ := want.(device.RSSTable)
	if extra := without(now.Queues, was.Queues); len(extra) > 0 {
		return fmt.Sprintf("%s also arrive in queues %s", traffic, c.ownedQueues(o.Dev, extra))
	}
	if missing := without(was.Queues, now.Queues); len(missing) > 0 {
		return fmt.Sprintf("%s no longer arrive in queues %s: fewer queues carry them", traffic,
			device.FormatCPUList(missing))
	}
	return traffic + " are spread over the same queues in other proportions; flows have moved"
}

// ownedQueues returns text with the queues and the lanes that have them.
func (c *check) ownedQueues(dev string, queues []int) string {
	return device.FormatCPUList(queues) + " (" + c.owners(dev, queues) + ")"
}

// owners returns the names of the lanes that have the queues.
func (c *check) owners(dev string, queues []int) string {
	var names []string
	for _, q := range queues {
		if n := named(c.ownerOf(dev, q)); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

func napiMeaning(o device.NAPIConfig, want, found device.Object, lane string) string {
	now, ok := found.(device.NAPIConfig)
	was, _ := want.(device.NAPIConfig)
	switch {
	case !ok:
		return fmt.Sprintf("queue %d has no NAPI any more, and so no poller of %s", o.Queue, named(lane))
	case now.Threaded != was.Threaded && now.Threaded == "off":
		return fmt.Sprintf("the NAPI of queue %d was replaced or switched: its kernel thread is gone, and softirq "+
			"polls %s "+
			"on the processor of the interrupt, among all other packets", o.Queue, named(lane))
	case now.Threaded != was.Threaded:
		return fmt.Sprintf("queue %d of %s is polled in another way than asked for", o.Queue, named(lane))
	}
	return fmt.Sprintf("queue %d of %s waits for packets for another time than asked for", o.Queue, named(lane))
}

func threadMeaning(o device.Thread, want, found device.Object, lane string) string {
	now, ok := found.(device.Thread)
	was, _ := want.(device.Thread)
	switch {
	case !ok:
		return fmt.Sprintf("the thread that polled queue %d of %s is gone", o.Queue, named(lane))
	case want == nil:
		return fmt.Sprintf("a kernel thread polls queue %d of %s, which is to be polled in softirq", o.Queue,
			named(lane))
	case !slices.Equal(now.CPUs, was.CPUs):
		return fmt.Sprintf("the thread that polls queue %d of %s moved: it runs on CPUs %s", o.Queue, named(lane),
			device.FormatCPUList(now.CPUs))
	}
	return fmt.Sprintf("the thread that polls queue %d of %s has another priority: it gets the processor later, or "+
		"takes it from others", o.Queue, named(lane))
}

func pollerMeaning(o device.Poller, found device.Object, lane string) string {
	queues := device.FormatCPUList(o.Queues)
	now, ok := found.(device.Poller)
	switch {
	case !ok:
		return fmt.Sprintf("the process that polled queues %s of %s is gone: softirq polls them, and packets that "+
			"follow one another "+
			"closely wait for up to gro-flush-timeout", queues, named(lane))
	case !slices.Equal(now.Queues, o.Queues):
		return fmt.Sprintf("the process that polls queue %d of %s polls queues %s, not %s", o.Queues[0], named(lane),
			device.FormatCPUList(now.Queues), queues)
	}
	return fmt.Sprintf("the process that polls queues %s of %s runs elsewhere, with another priority, or sleeps "+
		"earlier or later than asked for", queues, named(lane))
}

func xdpMeaning(o, found device.Object, lane string) string {
	who := named(lane)
	if lane == "" {
		who = "the lanes"
	}
	gone := found == nil
	switch o := o.(type) {
	case device.XDP:
		if gone {
			return "the program is detached: packets of the lanes arrive as default traffic"
		}
		return "another program is in niclane's place: it decides where packets of the lanes arrive"
	case device.CPUQueue:
		if gone {
			return fmt.Sprintf("processor %d takes no packets: those of %s that are meant for it are dropped", o.CPU,
				who)
		}
		return fmt.Sprintf("the queue to processor %d holds another number of packets", o.CPU)
	case device.CPUThread:
		return fmt.Sprintf("the thread that takes packets of %s on processor %d has another priority, or is gone", who,
			o.CPU)
	case device.CPULane:
		return "packets of " + who + " go to other processors"
	case device.XDPEntry:
		return "packets of " + o.Match.String() + " arrive as default traffic, or as another lane's"
	}
	return "not as niclane left it"
}

func featureMeaning(o device.Feature) string {
	switch o.Name {
	case "rx-ntuple-filter":
		return "the card's rules are switched off or dropped: packets of the lanes arrive as default traffic"
	case "hw-tc-offload":
		return "the card takes no filters and classes any more, and may have dropped the lanes': their packets " +
			"arrive as default traffic, or leave without their rates"
	case "rx-hashing":
		return "the card does not hash: packets are not spread over the lanes' queues"
	case "rx-vlan-hw-parse":
		return "the card strips VLAN tags before XDP sees them: tagged packets of the lanes lose their tag, or are " +
			"not recognised"
	case "rx-gro-hw", "rx-lro":
		return "the card joins packets before XDP sees them: they are larger than XDP takes, and some are dropped"
	case "rx-gro":
		return "GRO was switched: some drivers (veth) then replace the NAPIs, without their threads and settings"
	}
	return "the feature is not as it was"
}

func (c *check) countMeaning(d *device.Device, rx, tx int) string {
	var parts []string
	for _, l := range c.a.Lanes {
		if l.Device != d.Name {
			continue
		}
		gone := slices.DeleteFunc(slices.Clone(l.Queues), func(q int) bool { return q < min(d.RxQueues, d.TxQueues) })
		if len(gone) > 0 {
			parts = append(parts, fmt.Sprintf("lane %s has lost queues %s", l.Name, device.FormatCPUList(gone)))
		}
	}
	if have := d.TxQueues - d.Leaves(); have > tx {
		parts = append(parts, fmt.Sprintf("transmit queues %s belong to no lane and are not fenced: the kernel "+
			"hashes traffic of all lanes to them",
			device.FormatCPUList(from(tx, have))))
	}
	if d.RxQueues > rx {
		parts = append(parts, fmt.Sprintf("receive queues %s belong to no lane",
			device.FormatCPUList(from(rx, d.RxQueues))))
	}
	if len(parts) == 0 {
		return "queues that belong to no lane are gone"
	}
	return strings.Join(parts, "; ")
}

// countRepair says how to restore the number of queues. The channels come first, because apply
// gives the lanes the queues that the device has.
func (c *check) countRepair(dev string, was *device.Device) string {
	if was == nil {
		return c.apply()
	}
	if was.Channels == nil {
		return "niclane rollback " + c.a.Config + ", then " + c.apply()
	}
	if _, ours := c.owned[was.Channels.Key()]; ours {
		return c.apply()
	}
	n := was.Channels
	if n.Combined > 0 {
		return fmt.Sprintf("ethtool -L %s combined %d, then %s", dev, n.Combined, c.apply())
	}
	return fmt.Sprintf("ethtool -L %s rx %d tx %d, then %s", dev, n.RX, n.TX, c.apply())
}

func from(first, end int) []int {
	var out []int
	for q := first; q < end; q++ {
		out = append(out, q)
	}
	return out
}

// without returns the elements of a that are not in b, ascending, without duplicates.
func without(a, b []int) []int {
	var out []int
	for _, x := range a {
		if !slices.Contains(b, x) && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	slices.Sort(out)
	return out
}

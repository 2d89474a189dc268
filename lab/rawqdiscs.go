// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// putBFIFO makes or changes a FIFO of limit bytes.
func putBFIFO(n *node, index int, parent, handle uint32, limit int) error {
	qopt := binary.NativeEndian.AppendUint32(nil, uint32(limit)) // struct tc_fifo_qopt
	return putQdisc(n, index, parent, handle, "bfifo", nl.NewRtAttr(nl.TCA_OPTIONS, qopt))
}

// firstPriority is the priority (skb->priority) that the switch's program gives to packets that go
// first; all others get 0.
const firstPriority = 1

// putPrio makes or changes a qdisc with two classes. The first class is for firstPriority and goes first.
func putPrio(n *node, index int, parent, handle uint32) error {
	qopt := binary.NativeEndian.AppendUint32(nil, 2) // struct tc_prio_qopt: classes, class by priority
	for priority := range 16 {
		class := byte(1)
		if priority == firstPriority {
			class = 0
		}
		qopt = append(qopt, class)
	}
	return putQdisc(n, index, parent, handle, "prio", nl.NewRtAttr(nl.TCA_OPTIONS, qopt))
}

// putRED makes or changes a FIFO of limit bytes that marks each packet that finds mark bytes in it, and
// that can carry a mark. RED does this if its average is the last value (Wlog 0, and no memory of idle
// times), its two thresholds are equal, and it does not drop what cannot carry a mark (TC_RED_NODROP,
// Linux 5.7).
func putRED(n *node, index int, parent, handle uint32, limit, mark int) error {
	const ( // pkt_sched.h
		parms, stab, maxP, redFlags = 1, 2, 3, 4 // TCA_RED_PARMS and so on
		ecn, nodrop                 = 1, 8       // TC_RED_ECN, TC_RED_NODROP
	)
	var qopt []byte // struct tc_red_qopt
	for _, x := range []int{limit, mark, mark} {
		qopt = binary.NativeEndian.AppendUint32(qopt, uint32(x))
	}
	qopt = append(qopt, 0, 0, 0, 0)        // Wlog, Plog, Scell_log, flags
	flags := uint64(ecn | nodrop)          // struct nla_bitfield32: value and selector
	flags = flags | flags<<32              // of equal bits, so in any byte order
	table := bytes.Repeat([]byte{31}, 256) // right shifts of the average, by idle time
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(parms, qopt)
	options.AddRtAttr(stab, table)
	options.AddRtAttr(maxP, nl.Uint32Attr(0))
	options.AddRtAttr(redFlags, nl.Uint64Attr(flags))
	return putQdisc(n, index, parent, handle, "red", options)
}

// mostHeld is the largest number of packets in netem and fq, more than any link here has under way.
const mostHeld = 10_000_000

// putNetem makes the root qdisc of a device, in which each packet stays for delay ns.
func putNetem(n *node, index int, delay int64) error {
	const latency64 = 10     // TCA_NETEM_LATENCY64 of pkt_sched.h
	qopt := make([]byte, 24) // struct tc_netem_qopt
	binary.NativeEndian.PutUint32(qopt[4:], mostHeld)
	options := nl.NewRtAttr(nl.TCA_OPTIONS, qopt)
	options.AddRtAttr(latency64, nl.Uint64Attr(uint64(delay)))
	return putQdisc(n, index, netlink.HANDLE_ROOT, netlink.MakeHandle(1, 0), "netem", options)
}

// putFQ makes the root qdisc of a device, in which each packet stays until its time (skb->tstamp). Its
// timers have no slack.
func putFQ(n *node, index int) error {
	const limit, flowLimit, slack = 1, 2, 13 // TCA_FQ_PLIMIT and so on of pkt_sched.h
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(limit, nl.Uint32Attr(mostHeld))
	options.AddRtAttr(flowLimit, nl.Uint32Attr(mostHeld))
	options.AddRtAttr(slack, nl.Uint32Attr(0))
	return putQdisc(n, index, netlink.HANDLE_ROOT, netlink.MakeHandle(1, 0), "fq", options)
}

// putQdisc makes or changes a qdisc that the netlink library does not know, or knows in part. options
// is TCA_OPTIONS.
func putQdisc(n *node, index int, parent, handle uint32, kind string, options *nl.RtAttr) error {
	return n.do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent, Handle: handle})
		req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
		req.AddData(options)
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("this kernel has no sch_%s, which virtual time has: %w", kind, err)
		}
		return err
	})
}

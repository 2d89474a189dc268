// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/lane/device"
)

// Handles of linux/pkt_sched.h. The probes use them in a namespace that has only the loopback
// device.
const (
	loopback      = 1
	tcRoot        = 0xffffffff
	tcClsact      = 0xfffffff1
	tcIngress     = 0xfffffff2
	clsactHandle  = 0xffff0000
	probeHandle   = 0x10000
	filterAllPrio = 1<<16 | 0x0300 // preference 1, ETH_P_ALL in network order
)

// Attributes of linux/pkt_cls.h and linux/rtnetlink.h.
const (
	tcaKind      = 1
	tcaOptions   = 2
	tcaBPFFd     = 6
	tcaBPFName   = 7
	tcaBPFFlags  = 8
	bpfDirect    = 1 // TCA_BPF_FLAG_ACT_DIRECT
	tcaActTab    = 1
	tcaActKind   = 1
	rtmNewAction = 48
)

// ofTC are the capabilities of the kernel's traffic control.
var ofTC = []device.Capability{
	device.CapMqprio, device.CapMq, device.CapTBF, device.CapFQCodel, device.CapFQ, device.CapCake, device.CapHTB,
	device.CapClsact, device.CapClsBPF, device.CapFlower, device.CapSkbedit,
}

// probeTC tries qdiscs, classifiers and actions on the loopback device of a network namespace of
// its own. For each, the kernel first looks for the kind, and loads its module if necessary. If
// it does not have the kind, it returns ENOENT (net/sched/sch_api.c, cls_api.c, act_api.c). Any
// other error about the request means that it has the kind.
func probeTC() device.Capabilities {
	// This is not traffic control. It is here because it is also slow, so that its result is kept
	// too.
	caps := device.Capabilities{device.CapNAPITrace: probeNAPITrace()}
	c, err := nlsock.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		f := unanswered(err)
		for _, x := range ofTC {
			caps[x] = f
		}
		return caps
	}
	defer c.Close()
	caps[device.CapMqprio] = kindFinding(addQdisc(c, "mqprio", tcRoot, probeHandle))
	// mq refuses loopback, because loopback has only one queue. tbf and the other kinds refuse a
	// request without options.
	caps[device.CapMq] = kindFinding(addQdisc(c, "mq", tcRoot, probeHandle))
	caps[device.CapTBF] = kindFinding(addQdisc(c, "tbf", tcRoot, probeHandle))
	caps[device.CapHTB] = kindFinding(addQdisc(c, "htb", tcRoot, probeHandle))
	caps[device.CapFQCodel] = kindFinding(addQdisc(c, "fq_codel", tcRoot, probeHandle+probeHandle))
	caps[device.CapFQ] = kindFinding(addQdisc(c, "fq", tcRoot, probeHandle+3*probeHandle))
	caps[device.CapCake] = kindFinding(addQdisc(c, "cake", tcRoot, probeHandle+2*probeHandle))
	caps[device.CapClsact] = kindFinding(addQdisc(c, "clsact", tcClsact, clsactHandle))
	caps[device.CapSkbedit] = kindFinding(addAction(c, "skbedit"))
	if caps[device.CapClsact].Answer != device.Yes {
		caps[device.CapFlower] = device.Finding{Answer: caps[device.CapClsact].Answer,
			Why: "needs clsact: " + caps[device.CapClsact].Why}
		caps[device.CapClsBPF] = caps[device.CapFlower]
		return caps
	}
	caps[device.CapFlower] = kindFinding(addFilter(c, "flower", nil))
	caps[device.CapClsBPF] = probeClsBPF(c)
	return caps
}

// kindFinding returns the finding for a request with a kind and no options.
func kindFinding(err error) device.Finding {
	switch {
	case err == nil:
		return yes("tried in a network namespace of its own")
	case errors.Is(err, unix.ENOENT):
		return no("%v", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EEXIST):
		return yes("the kernel knows the kind (it answers: %v)", err)
	}
	return unanswered(err)
}

// probeClsBPF loads a program that passes every packet, and attaches it with cls_bpf.
func probeClsBPF(c *netlink.Conn) device.Finding {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "niclane_probe", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		f := unanswered(fmt.Errorf("load a program: %w", err))
		if errors.Is(err, ebpf.ErrNotSupported) {
			f.Answer = device.No
		}
		return f
	}
	defer prog.Close()
	err = addFilter(c, "bpf", func(ae *netlink.AttributeEncoder) error {
		ae.Uint32(tcaBPFFd, uint32(prog.FD()))
		ae.String(tcaBPFName, "niclane_probe")
		ae.Uint32(tcaBPFFlags, bpfDirect)
		return nil
	})
	if err == nil {
		err = bpf.Load()
	}
	switch {
	case err == nil:
		return yes("niclane's program loads, and one was attached in a network namespace of its own")
	case errors.Is(err, unix.ENOENT):
		return no("%v", err)
	}
	return unanswered(err)
}

func addQdisc(c *netlink.Conn, kind string, parent, handle uint32) error {
	return tcRequest(c, unix.RTM_NEWQDISC, tcmsg(parent, handle, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, kind)
	})
}

func addFilter(c *netlink.Conn, kind string, options func(*netlink.AttributeEncoder) error) error {
	return tcRequest(c, unix.RTM_NEWTFILTER, tcmsg(tcIngress, 0, filterAllPrio), func(ae *netlink.AttributeEncoder) {
		ae.String(tcaKind, kind)
		if options != nil {
			ae.Nested(tcaOptions, options)
		}
	})
}

func addAction(c *netlink.Conn, kind string) error {
	const tcamsgLen = 4
	return tcRequest(c, rtmNewAction, make([]byte, tcamsgLen), func(ae *netlink.AttributeEncoder) {
		ae.Nested(tcaActTab, func(tab *netlink.AttributeEncoder) error {
			tab.Nested(1, func(act *netlink.AttributeEncoder) error {
				act.String(tcaActKind, kind)
				return nil
			})
			return nil
		})
	})
}

// tcmsg returns a struct tcmsg (rtnetlink(7)) for the loopback device.
func tcmsg(parent, handle, info uint32) []byte {
	b := make([]byte, 20)
	binary.NativeEndian.PutUint32(b[4:], loopback)
	binary.NativeEndian.PutUint32(b[8:], handle)
	binary.NativeEndian.PutUint32(b[12:], parent)
	binary.NativeEndian.PutUint32(b[16:], info)
	return b
}

func tcRequest(c *netlink.Conn, typ netlink.HeaderType, header []byte, body func(*netlink.AttributeEncoder)) error {
	ae := netlink.NewAttributeEncoder()
	body(ae)
	attrs, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl},
		Data:   append(header, attrs...),
	})
	return extack.Error(err)
}

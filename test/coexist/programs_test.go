// SPDX-License-Identifier: Apache-2.0

package coexist

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
)

// Verdicts of programs, from linux/bpf.h.
const (
	xdpPass = 2
	tcOK    = 0 // no further filter runs
	tcxPass = 0 // no further program runs
)

// counting makes a program that counts packets and returns verdict for each.
func counting(t *testing.T, name string, typ ebpf.ProgramType, verdict int32) (*ebpf.Program, *ebpf.Map) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "seen", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must.Do(t, err)
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: typ, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
			asm.Return(),
		},
	})
	must.Do(t, err)
	t.Cleanup(func() { p.Close() })
	return p, m
}

func port(t *testing.T) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(lab.Port)
	must.Do(t, err)
	return l
}

// bareXDP attaches a program to the XDP slot directly, as a load balancer or a firewall does.
func bareXDP(t *testing.T) func() (in, out uint64) {
	p, m := counting(t, "their_xdp", ebpf.XDP, xdpPass)
	must.Do(t, netlink.LinkSetXdpFdWithFlags(port(t), p.FD(), unix.XDP_FLAGS_SKB_MODE))
	return func() (uint64, uint64) { return counter(t, m), 0 }
}

// clsact attaches filters as Cilium does: they run first, and no further filter runs after them.
func clsact(t *testing.T) func() (in, out uint64) {
	l := port(t)
	index := l.Attrs().Index
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}); err != nil {
		t.Fatal(err)
	}
	from, in := counting(t, "cil_from_netdev", ebpf.SchedCLS, tcOK)
	to, out := counting(t, "cil_to_netdev", ebpf.SchedCLS, tcOK)
	for _, f := range []struct {
		p      *ebpf.Program
		name   string
		parent uint32
	}{{from, "cil_from_netdev", netlink.HANDLE_MIN_INGRESS}, {to, "cil_to_netdev", netlink.HANDLE_MIN_EGRESS}} {
		if err := netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: f.parent, Handle: 1, Protocol: unix.ETH_P_ALL,
				Priority: 1},
			Fd: f.p.FD(), Name: f.name, DirectAction: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return func() (uint64, uint64) { return counter(t, in), counter(t, out) }
}

// tcx attaches a program as newer versions of Cilium do, if the kernel has TCX.
func tcx(t *testing.T) func() (in, out uint64) {
	p, m := counting(t, "their_tcx", ebpf.SchedCLS, tcxPass)
	l, err := link.AttachTCX(link.TCXOptions{Interface: port(t).Attrs().Index, Program: p,
		Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil
	}
	must.Do(t, err)
	t.Cleanup(func() { l.Close() })
	return func() (uint64, uint64) { return 0, counter(t, m) }
}

// extensions returns an error if the kernel lacks BPF_PROG_TYPE_EXT. On such a kernel, libxdp
// attaches the program itself, without a dispatcher.
func extensions() error { return features.HaveProgramType(ebpf.Extension) }

// dispatcher attaches a program by libxdp's dispatcher. The program is xdp-filter(8), set to allow
// and count all packets.
func dispatcher(t *testing.T) func() (in, out uint64) {
	mountBPF(t)
	vethtest.Command(t, "xdp-filter load --mode skb --policy allow "+lab.Port)
	m, err := ebpf.LoadPinnedMap("/sys/fs/bpf/xdp-filter/xdp_stats_map", nil)
	must.Do(t, err)
	t.Cleanup(func() { m.Close() })
	return func() (uint64, uint64) {
		var perCPU []struct{ Packets, Bytes uint64 }
		must.Do(t, m.Lookup(uint32(xdpPass), &perCPU))
		var n uint64
		for _, c := range perCPU {
			n += c.Packets
		}
		return n, 0
	}
}

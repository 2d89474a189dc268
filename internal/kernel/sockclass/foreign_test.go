// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

var attachTypes = []ebpf.AttachType{ebpf.AttachCGroupInetSockCreate, ebpf.AttachCGroupSockOps}

// counting returns a foreign sockops program that counts its calls in a map. name and mapName
// may be the names of niclane's own program and map.
func counting(t *testing.T, name, mapName string) (*ebpf.Program, func() uint64) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: mapName, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	must.Do(t, err)
	t.Cleanup(func() { m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "MIT",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("out"), asm.Return(),
		},
	})
	must.Do(t, err)
	t.Cleanup(func() { p.Close() })
	return p, func() uint64 {
		var n uint64
		must.Do(t, m.Lookup(uint32(0), &n))
		return n
	}
}

// setting returns a sock_create program that sets a priority.
func setting(t *testing.T, priority int32) *ebpf.Program {
	t.Helper()
	const offsetPriority = 20 // of struct bpf_sock
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "niclane_sock", // niclane's name, but without the map
		Type: ebpf.CGroupSock, AttachType: ebpf.AttachCGroupInetSockCreate, License: "MIT",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, priority),
			asm.StoreMem(asm.R1, offsetPriority, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, 1), asm.Return(),
		},
	})
	must.Do(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// replying returns a sockops program that answers one question of the kernel: how long, in
// jiffies, it waits for the answer to a SYN.
func replying(t *testing.T, jiffies int32) *ebpf.Program {
	t.Helper()
	const timeoutInit, offsetReply = 1, 4 // BPF_SOCK_OPS_TIMEOUT_INIT, of struct bpf_sock_ops
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "theirs", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "MIT",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
			asm.JNE.Imm(asm.R2, timeoutInit, "out"),
			asm.Mov.Imm(asm.R2, jiffies),
			asm.StoreMem(asm.R1, offsetReply, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("out"), asm.Return(),
		},
	})
	must.Do(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// TestForeignReply: the kernel gets the answer of a foreign program, whether that program runs
// before or after niclane's.
func TestForeignReply(t *testing.T) {
	for name, after := range map[string]bool{"before ours": false, "after ours": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				link := vethtest.Interface(t, vethtest.Dev)
				vethtest.AddAddress(t, link.Index, [4]byte{10, 9, 0, 1}, 24)
				const jiffies = 2500 // 2.5 s to 25 s; without it 1 s
				theirs := replying(t, jiffies)
				if after {
					b.write(nil, b.class("1:10"))
				}
				b.attach(b.dir(), theirs, ebpf.AttachCGroupSockOps, unix.BPF_F_ALLOW_MULTI)
				if !after {
					b.write(nil, b.class("1:10"))
				}
				a := startApp(t, b.dir(), false)
				a.do("tcp c")
				a.do("begin c 10.9.0.2 9")
				if us := a.do("rto c"); us < 2e6 {
					t.Errorf("the answer to a SYN is waited for %d us, want what their program says", us)
				}
				a.want("connecting", "c=10010")
			})
		})
	}
}

// attach attaches a foreign program, until the group is removed.
func (b *bed) attach(dir string, p *ebpf.Program, at ebpf.AttachType, flags uint32) {
	b.Helper()
	f, err := os.Open(dir)
	must.Do(b, err)
	defer f.Close()
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(f.Fd()), Program: p, Attach: at,
		Flags: flags}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) detach(dir string, id ebpf.ProgramID, at ebpf.AttachType) {
	b.Helper()
	f, err := os.Open(dir)
	must.Do(b, err)
	defer f.Close()
	p, err := ebpf.NewProgramFromID(id)
	must.Do(b, err)
	defer p.Close()
	if err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(f.Fd()), Program: p,
		Attach: at}); err != nil {
		b.Fatal(err)
	}
}

// attached returns the IDs of the programs on a group.
func (b *bed) attached(dir string, at ebpf.AttachType) []ebpf.ProgramID {
	b.Helper()
	f, err := os.Open(dir)
	must.Do(b, err)
	defer f.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(f.Fd()), Attach: at})
	must.Do(b, err)
	var ids []ebpf.ProgramID
	for _, p := range r.Programs {
		ids = append(ids, p.ID)
	}
	return ids
}

func id(t *testing.T, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	info, err := p.Info()
	must.Do(t, err)
	id, _ := info.ID()
	return id
}

func TestForeignPrograms(t *testing.T) {
	run(t, func(b *bed) {
		first, firstCount := counting(t, "niclane_sockops", "theirs")
		last, lastCount := counting(t, "theirs", "niclane_class")
		six, seven := setting(t, 6), setting(t, 7)
		b.attach(b.dir(), first, ebpf.AttachCGroupSockOps, unix.BPF_F_ALLOW_MULTI)
		b.attach(b.dir(), six, ebpf.AttachCGroupInetSockCreate, unix.BPF_F_ALLOW_MULTI)
		if got := b.read(b.class("")); got != nil {
			t.Fatalf("with programs of others: %+v", got)
		}
		b.write(nil, b.class("1:10"))
		a := startApp(t, b.dir(), false)
		a.do("udp u")
		a.want("theirs before ours", "u=6")
		b.attach(b.dir(), last, ebpf.AttachCGroupSockOps, unix.BPF_F_ALLOW_MULTI)
		b.attach(b.dir(), seven, ebpf.AttachCGroupInetSockCreate, unix.BPF_F_ALLOW_MULTI)
		a.do("udp v")
		a.want("theirs after ours", "v=7")
		a.do("tcp l")
		a.do("listen l 0")
		f, n := firstCount(), lastCount()
		a.connect("l", "c", "s")
		a.want("with theirs", "c=7", "s=10010")
		if got := b.read(b.class("1:10")); !device.Equal(got, b.class("1:10")) {
			t.Errorf("with theirs: %+v", got)
		}
		if firstCount() == f || lastCount() == n {
			t.Errorf("their programs ran %d and %d times, want more", firstCount()-f, lastCount()-n)
		}
		b.write(b.class("1:10"), b.class("1:20"))
		for _, at := range attachTypes {
			got, before, after := b.attached(b.dir(), at), id(t, first), id(t, last)
			if at == ebpf.AttachCGroupInetSockCreate {
				before, after = id(t, six), id(t, seven)
			}
			if len(got) != 3 || got[0] != before || got[2] != after {
				t.Errorf("%s: programs %v, want %d, ours, %d", at, got, before, after)
			}
		}
		b.write(b.class("1:20"), nil)
		want := map[ebpf.AttachType][]ebpf.ProgramID{
			attachTypes[0]: {id(t, six), id(t, seven)},
			attachTypes[1]: {id(t, first), id(t, last)},
		}
		for _, at := range attachTypes {
			if diff := cmp.Diff(want[at], b.attached(b.dir(), at)); diff != "" {
				t.Errorf("%s after removal (-want +got):\n%s", at, diff)
			}
		}
		a.want("removed", "u=6", "v=7", "c=7", "s=0")
	})
}

// TestExclusiveProgram: Write fails if a program that excludes others is on the group, or on the
// group above it.
func TestExclusiveProgram(t *testing.T) {
	for name, below := range map[string][]string{"on the group": nil, "above": {"below"}} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				mkdir(t, b.dir("below"))
				p, _ := counting(t, "theirs", "theirs")
				b.attach(b.dir(), p, ebpf.AttachCGroupSockOps, 0)
				err := b.c.Write(nil, b.class("1:10", below...))
				if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "may exclude others") {
					t.Fatalf("%v, want EPERM saying why", err)
				}
				t.Log(err)
				// The other hook was free, so Write has attached one of the two programs.
				half := b.class("", below...)
				if got := b.read(half); !device.Equal(got, half) {
					t.Fatalf("after the failure: %+v", got)
				}
				b.write(half, nil)
			})
		})
	}
}

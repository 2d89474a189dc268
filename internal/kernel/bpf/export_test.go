// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/niclane/niclane/lane/device"
)

// DropProgram loads a program that drops all packets (TC_ACT_SHOT), as a foreign program
// may do.
func DropProgram() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "theirs", Type: ebpf.SchedCLS, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
}

// VLANProgram loads a program that tags all packets with a VLAN.
func VLANProgram(id int32) (*ebpf.Program, error) {
	const protocol = 0x8100
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "push", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, protocol), asm.HostTo(asm.BE, asm.R2, asm.Half), asm.Mov.Imm(asm.R3, id),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, -1), asm.Return(),
		},
	})
}

// CPUMap returns the ID of the cpumap of niclane's XDP program on a device.
func (c *Client) CPUMap(dev string) (ebpf.MapID, error) {
	m, err := c.openXDP(dev)
	if m == nil || err != nil {
		return 0, err
	}
	return m.cpusID, nil
}

// PassProgram loads an XDP program that passes all packets.
func PassProgram(name string) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
}

// Prepared returns the IDs of the programs that Prepare has loaded and Write has not used,
// ascending.
func (c *Client) Prepared(t testing.TB) (ids []ebpf.ProgramID) {
	t.Helper()
	for _, all := range c.loading {
		for _, to := range all {
			l := <-to
			to <- l
			if l.err != nil {
				t.Fatal(l.err)
			}
			for _, p := range l.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				id, _ := info.ID()
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// Attached returns the IDs of a filter's program and of the program in its device's XDP
// slot, ascending.
func (c *Client) Attached(t testing.TB, f device.Filter) []ebpf.ProgramID {
	t.Helper()
	s, err := c.tc.Filter(f)
	if err != nil || s == nil {
		t.Fatalf("filter %v, %v", s, err)
	}
	slots, err := c.slots(f.Dev)
	if err != nil || len(slots) != 1 {
		t.Fatalf("slots %v, %v", slots, err)
	}
	ids := []ebpf.ProgramID{ebpf.ProgramID(s.ProgramID), ebpf.ProgramID(slots[0].program)}
	slices.Sort(ids)
	return ids
}

// ForgetTranslation makes a filter's program like one that was attached before the
// offsets of connection tracking were known.
func (c *Client) ForgetTranslation(f device.Filter) error {
	m, err := c.open(f)
	if err != nil {
		return err
	}
	return m.translation.Update(uint32(0), translation{}, ebpf.UpdateExist)
}

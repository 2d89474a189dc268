// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// DropProgram loads a program that drops everything (TC_ACT_SHOT), as somebody
// else might attach.
func DropProgram() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "theirs", Type: ebpf.SchedCLS, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
}

// VLANProgram loads a program that tags everything with a VLAN.
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

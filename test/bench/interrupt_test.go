// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/niclane/niclane/internal/testing/must"
)

// entries are the kernel's tracepoints at the start of an interrupt: from devices
// (trace/events/irq.h), from the processor's timer, and from other processors
// (arch/x86/include/asm/trace/irq_vectors.h).
var entries = []string{
	"irq_handler_entry", "local_timer_entry", "reschedule_entry", "call_function_entry", "call_function_single_entry",
	"irq_work_entry",
}

// interrupts records when interrupts come to processors. times returns the times recorded since its
// last call, in ns of CLOCK_MONOTONIC, in rising order. A kernel lacks a tracepoint if it has no
// such interrupts or is not for x86. If it lacks all of them, the benchmark is skipped.
func interrupts(b *testing.B, cpus ...int) (times func() []int64) {
	b.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Queue, ValueSize: 8, MaxEntries: 1 << 16})
	must.Do(b, err)
	b.Cleanup(func() { m.Close() })
	code := asm.Instructions{asm.FnGetSmpProcessorId.Call()}
	for _, cpu := range cpus {
		code = append(code, asm.JEq.Imm(asm.R0, int32(cpu), "note"))
	}
	code = append(code,
		asm.Ja.Label("exit"),
		asm.FnKtimeGetNs.Call().WithSymbol("note"),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnMapPushElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: code})
	must.Do(b, err)
	b.Cleanup(func() { p.Close() })
	attached := 0
	for _, name := range entries {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		attached++
		b.Cleanup(func() { l.Close() })
	}
	if attached == 0 {
		b.Skip("no tracepoints of interrupts here")
	}
	return func() (at []int64) {
		var t int64
		for m.LookupAndDelete(nil, &t) == nil {
			at = append(at, t)
		}
		slices.Sort(at)
		return at
	}
}

// among reports whether one of the times, which are in rising order, is between begin and end.
func among(times []int64, begin, end int64) bool {
	i, _ := slices.BinarySearch(times, begin)
	return i < len(times) && times[i] <= end
}

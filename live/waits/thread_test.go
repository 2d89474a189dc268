// SPDX-License-Identifier: Apache-2.0

package waits_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/live/waits"
)

// TestNAPIThread: a thread that keeps the SUT's NAPI thread from its processor delays between card and
// stack, and has the name of the culprit.
func TestNAPIThread(t *testing.T) {
	b := newBed(t, lab.Config{Queues: 1})
	cpu := b.Config.OtherCPUs[0]
	for _, thread := range b.threaded(t) {
		must.Do(t, sched.SetAffinity(thread, []int{cpu}))
	}
	b.keptFrom(t, cpu)
}

// TestCPUMap: the same where native XDP redirects packets to another processor.
func TestCPUMap(t *testing.T) {
	b := newBed(t, lab.Config{Queues: 1})
	cpu := b.Config.OtherCPUs[0]
	b.redirect(t, cpu)
	b.keptFrom(t, cpu)
}

// keptFrom burns on the processor to which packets come. Their thread then waits for it, but not
// longer than the burner has it at once. Without the burner, it hardly waits, also if packets are rare.
func (b *bed) keptFrom(t *testing.T, cpu int) {
	t.Helper()
	unit := b.unit(t)
	busy := 5 * unit
	b.start(t, serverRole)
	stop := b.start(t, burnRole, "-cpu", strconv.Itoa(cpu), "-for", busy.String())
	// At whatever cost: what the processors run is then remembered again and again while the programs stay attached.
	c := b.with(t, "tcp", waits.Options{MaxCost: 1})
	x := attributed(t, c, 1200, func() { b.load(t, "tcp", 8, 150, request, 2*unit) }, waits.CardToStack, "burner")
	if p99 := x.Waits[waits.CardToStack].ValueAt(99); p99 > 4*int64(busy) {
		t.Errorf("P99 of card-to-stack is %s, but the burner never has the processor for more than %v",
			waits.Duration(p99), busy)
	}
	stop(nil)
	x = measured(t, c, 50, func() { b.load(t, "tcp", 1, 50, request, 2*unit) })
	if p50 := x.Waits[waits.CardToStack].ValueAt(50); p50 > int64(unit) {
		t.Errorf("P50 of card-to-stack is %s without the burner, want less than %v", waits.Duration(p50), unit)
	}
}

// threaded makes the SUT's port poll by threads, and returns these.
func (b *bed) threaded(t *testing.T) []int {
	t.Helper()
	before := napiThreads(t)
	labtest.OnHost(t, b.Lab, lab.SUT, func(t *testing.T) {
		must.Do(t, unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
		must.Do(t, os.WriteFile("/sys/class/net/"+lab.Port+"/threaded", []byte("1"), 0))
	})
	var ours []int
	for _, id := range napiThreads(t) {
		if !slices.Contains(before, id) {
			ours = append(ours, id)
		}
	}
	if len(ours) == 0 {
		t.Fatal("no NAPI thread")
	}
	return ours
}

// napiThreads returns the threads of the host's NAPIs on devices with the port's name.
func napiThreads(t *testing.T) (ids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	must.Do(t, err)
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(comm), "napi/"+lab.Port+"-") {
			continue // it may have ended
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		must.Do(t, err)
		ids = append(ids, id)
	}
	return ids
}

// redirect attaches native XDP to the SUT's port, which redirects all packets to a processor.
func (b *bed) redirect(t *testing.T, cpu int) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.CPUMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(cpu) + 1})
	must.Do(t, err)
	t.Cleanup(func() { m.Close() })
	must.Do(t, m.Put(uint32(cpu), uint32(512))) // packets
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Imm(asm.R2, int32(cpu)),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}})
	must.Do(t, err)
	defer prog.Close()
	must.Do(t, b.Do(lab.SUT, func() error {
		i, err := net.InterfaceByName(lab.Port)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: i.Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
	// A redirected frame loses the mark that its checksum is left to a card.
	must.Do(t, b.Do(lab.Client, func() error {
		c, err := ethtool.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		return c.SetFeature(device.Feature{Dev: lab.HostPort, Name: "tx-checksum-ip-generic"})
	}))
}

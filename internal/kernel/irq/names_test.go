// SPDX-License-Identifier: Apache-2.0

package irq

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

const (
	pci    = "0000:3b:00.0"
	parent = "virtio2"
)

func TestDeviceIRQs(t *testing.T) {
	tests := []struct {
		driver string
		names  []string // of IRQs 0, 1, 2, ...
		want   []int    // queue of each IRQ; other if the IRQ is not the device's
	}{
		{"ice", []string{"ice-eth1-TxRx-0", "ice-eth1-TxRx-12", "ice-eth1-rx-13", "ice-eth10-TxRx-0",
			"ice-0000:3b:00.0:misc", "ice-0000:3b:00.0:ctrl-TxRx-0", "ice-0000:3b:00.0:ll_ts", "ice-0000:3b:00.1:misc"},
			[]int{0, 12, 13, other, -1, -1, -1, other}},
		{"ice", []string{"ice-eth1-TxRx-0-3", "ice-eth1-TxRx-4-7"}, []int{0, 4}}, // out-of-tree driver: several queues
		{"i40e", []string{"i40e-eth1-TxRx-0", "i40e-eth1-TxRx-63", "i40e-0000:3b:00.0:misc"}, []int{0, 63, -1}},
		{"iavf", []string{"iavf-eth1-TxRx-3", "iavf-0000:3b:00.0:mbx", "iavf-eth11-TxRx-3"}, []int{3, -1, other}},
		{"mlx5_core", []string{"mlx5_async0@pci:0000:3b:00.0", "mlx5_comp0@pci:0000:3b:00.0",
			"mlx5_comp31@pci:0000:3b:00.0", "mlx5_comp0@pci:0000:3b:00.1"},
			[]int{-1, 0, 31, other}},
		{"bnxt_en", []string{"eth1-TxRx-0", "eth1-rx-4", "eth1-tx-5", "eth1-TxRx-"}, []int{0, 4, 5, other}},
		{"sfc", []string{"eth1-0", "eth1-rx-1", "eth1-tx-2", "eth1-xdp-0", "eth1-2-0"}, []int{0, 1, 2, -1, other}},
		{"ena", []string{"ena-mgmnt@pci:0000:3b:00.0", "eth1-Tx-Rx-0", "eth1-Tx-Rx-7"}, []int{-1, 0, 7}},
		// Four blocks: transmit 0 and 1, receive 0 and 1.
		{"gve", []string{"gve-ntfy-blk0@pci:0000:3b:00.0", "gve-ntfy-blk1@pci:0000:3b:00.0",
			"gve-ntfy-blk2@pci:0000:3b:00.0", "gve-ntfy-blk3@pci:0000:3b:00.0", "gve-mgmnt@pci:0000:3b:00.0"},
			[]int{0, 1, 0, 1, -1}},
		{"gve", []string{"eth1-ntfy-block.0", "eth1-ntfy-block.1"}, []int{0, 0}}, // Linux 6.1
		{"virtio_net", []string{"virtio2-config", "virtio2-input.0", "virtio2-output.0", "virtio2-input.11",
			"virtio3-input.0", "virtio2-input"},
			[]int{-1, 0, 0, 11, other, other}},
		{"virtio_net", []string{"virtio2-virtqueues"}, []int{-1}},
		{"vmxnet3", []string{"eth1-rxtx-0", "eth1-rx-1", "eth1-tx-1", "eth1-event-2"}, []int{0, 1, 1, -1}},
		{"igb", []string{"eth1", "eth1-TxRx-0", "eth1-rx-1", "eth10"}, []int{-1, 0, 1, other}},
		{"igc", []string{"eth1", "eth1-TxRx-3"}, []int{-1, 3}},
		{"ixgbe", []string{"eth1-TxRx-63", "eth1", "eth1-TxRx-x"}, []int{63, -1, other}},
		{"hv_netvsc", []string{"eth1-TxRx-0"}, []int{other}},
		{"veth", []string{"eth1"}, []int{other}},
		{"tun", []string{"eth1-0"}, []int{other}},
	}
	for _, tt := range tests {
		t.Run(tt.driver, func(t *testing.T) {
			all := map[int][]string{}
			var want []device.IRQ
			for n, name := range tt.names {
				all[n] = []string{name}
				if tt.want[n] != other {
					want = append(want, device.IRQ{Number: n, Name: name, Queue: tt.want[n]})
				}
			}
			if diff := cmp.Diff(want, Of(all, tt.driver, "eth1", pci, parent)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

const other = -2

// TestAddIRQ: Add takes an IRQ's queue from napi-get, if it is known there, else from its name.
func TestAddIRQ(t *testing.T) {
	d := device.Device{IRQs: []device.IRQ{{Number: 5, Name: "eth1-TxRx-0", Queue: 0},
		{Number: 6, Name: "eth1-TxRx-1", Queue: 1}}}
	d.IRQs = Add(d.IRQs, 5, 3, "eth1-TxRx-0")
	d.IRQs = Add(d.IRQs, 6, -1, "eth1-TxRx-1") // a NAPI without a receive queue
	d.IRQs = Add(d.IRQs, 7, 2, "something")
	want := []device.IRQ{{Number: 5, Name: "eth1-TxRx-0", Queue: 3}, {Number: 6, Name: "eth1-TxRx-1", Queue: 1},
		{Number: 7, Name: "something", Queue: 2}}
	if diff := cmp.Diff(want, d.IRQs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseInterrupts(t *testing.T) {
	b, err := os.ReadFile("testdata/interrupts")
	must.Do(t, err)
	got := Parse(string(b))
	want := map[int][]string{
		4:   {"ttyS0"},
		16:  {"i801_smbus", "ice-eth1-TxRx-0"},
		24:  {"PCIe", "PME"}, // the end of the chip's fields is not marked
		38:  {"virtio2-input.0"},
		130: {"mlx5_comp0@pci:0000:3b:00.0"},
	}
	// Parse cannot tell a name with spaces from the chip's fields, and returns only the last
	// word. No name that niclane needs has spaces.
	want[24] = []string{"PME"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseInterrupts(f *testing.F) {
	b, err := os.ReadFile("testdata/interrupts")
	must.Do(f, err)
	f.Add(string(b))
	f.Add("           CPU0\n 1: 5 x\n")
	f.Fuzz(func(t *testing.T, s string) {
		for n, names := range Parse(s) {
			if n < 0 || len(names) == 0 {
				t.Errorf("IRQ %d: %q", n, names)
			}
			for _, name := range names {
				if strings.ContainsAny(name, " \n\t") {
					t.Errorf("IRQ %d: name %q", n, name)
				}
				matchIRQ(strings.NewReplacer(), irqNames["mlx5_core"], name)
			}
		}
	})
}

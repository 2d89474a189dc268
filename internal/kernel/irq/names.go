// SPDX-License-Identifier: Apache-2.0

package irq

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Parse reads /proc/interrupts and returns the names of each IRQ's actions. It ignores lines
// without an IRQ number.
func Parse(s string) map[int][]string {
	m := map[int][]string{}
	cpus := 0
	for line := range strings.Lines(s) {
		head, rest, ok := strings.Cut(line, ":")
		if !ok {
			if cpus == 0 {
				cpus = len(strings.Fields(line))
			}
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(head))
		if err != nil || n < 0 {
			continue
		}
		f := strings.Fields(rest)
		if len(f) <= cpus+1 { // the IRQ has no action
			continue
		}
		m[n] = actionNames(f[cpus+1:])
	}
	return m
}

// actionNames returns the names at the end of a line, after the chip's fields:
// "2-edge eth0-rx-0, eth1-rx-0". A comma follows every name except the last.
func actionNames(f []string) []string {
	first := len(f) - 1
	for first > 0 && strings.HasSuffix(f[first-1], ",") {
		first--
	}
	names := make([]string, 0, len(f)-first)
	for _, n := range f[first:] {
		names = append(names, strings.TrimSuffix(n, ","))
	}
	return names
}

// An irqName describes the names of a device's IRQs: a prefix, a suffix, and the channel's
// number between them. In prefix and suffix, DEV stands for the interface's name, PCI for its
// PCI address, PARENT for its parent device ("virtio2").
type irqName struct {
	prefix, suffix string
	between        irqBetween
}

// An irqBetween is the kind of text between prefix and suffix.
type irqBetween int

const (
	// channel: the channel's number.
	channel irqBetween = iota
	// channels: the channel's number, or the first and last number of several channels
	// ("0-3"). The first number counts.
	channels
	// nothing: no text; the IRQ serves no queue.
	nothing
	// number: a number; the IRQ serves no queue.
	number
)

// irqNames are the names by driver, from the drivers' sources (Linux 7.3). A comment gives
// the function that sets the name. niclane needs the names if the driver does not report NAPI
// and IRQ to netdev-genl.
var irqNames = map[string][]irqName{
	// intel/ice/ice_main.c: ice_vsi_req_irq_msix, ice_req_irq_msix_misc; in the out-of-tree
	// driver, one vector serves several queues.
	"ice": {
		{"ice-DEV-TxRx-", "", channels}, {"ice-DEV-rx-", "", channel}, {"ice-DEV-tx-", "", channel},
		{"ice-PCI:misc", "", nothing}, {"ice-PCI:ll_ts", "", nothing}, {"ice-PCI:ctrl-TxRx-0", "", nothing},
	},
	// intel/i40e/i40e_main.c: i40e_vsi_request_irq_msix.
	"i40e": {
		{"i40e-DEV-TxRx-", "", channel}, {"i40e-DEV-rx-", "", channel}, {"i40e-DEV-tx-", "", channel},
		{"i40e-PCI:misc", "", nothing},
	},
	// intel/iavf/iavf_main.c: iavf_request_traffic_irqs.
	"iavf": {
		{"iavf-DEV-TxRx-", "", channel}, {"iavf-DEV-rx-", "", channel}, {"iavf-DEV-tx-", "", channel},
		{"iavf-PCI:mbx", "", nothing},
	},
	// mellanox/mlx5/core/pci_irq.c: irq_set_name.
	"mlx5_core": {{"mlx5_comp", "@pci:PCI", channel}, {"mlx5_async", "@pci:PCI", number}},
	// broadcom/bnxt/bnxt.c: bnxt_setup_msix.
	"bnxt_en": {{"DEV-TxRx-", "", channel}, {"DEV-rx-", "", channel}, {"DEV-tx-", "", channel}},
	// sfc/efx_channels.c: efx_get_channel_name.
	"sfc": {{"DEV-", "", channel}, {"DEV-rx-", "", channel}, {"DEV-tx-", "", channel}, {"DEV-xdp-", "", number}},
	// amazon/ena/ena_netdev.c: ena_setup_io_intr, ena_setup_mgmnt_intr.
	"ena": {{"DEV-Tx-Rx-", "", channel}, {"ena-mgmnt@pci:PCI", "", nothing}},
	// google/gve/gve_main.c: gve_alloc_notify_blocks; see gveQueues.
	"gve": {{"gve-ntfy-blk", "@pci:PCI", channel}, {"DEV-ntfy-block.", "", channel}, {"gve-mgmnt@pci:PCI", "", nothing},
		{"DEV-mgmnt", "", nothing}},
	// drivers/virtio/virtio_pci_common.c: vp_request_msix_vectors,
	// vp_find_vqs_msix; drivers/net/virtio_net.c: virtnet_find_vqs.
	"virtio_net": {
		{"PARENT-input.", "", channel}, {"PARENT-output.", "", channel},
		{"PARENT-config", "", nothing}, {"PARENT-virtqueues", "", nothing},
	},
	// vmxnet3/vmxnet3_drv.c: vmxnet3_request_irqs.
	"vmxnet3": {{"DEV-rxtx-", "", channel}, {"DEV-rx-", "", channel}, {"DEV-tx-", "", channel},
		{"DEV-event-", "", number}},
	// intel/igb/igb_main.c, igc/igc_main.c, ixgbe/ixgbe_main.c:
	// *_request_msix, *_request_msix_irqs.
	"igb":   intelNames,
	"igc":   intelNames,
	"ixgbe": intelNames,
}

var intelNames = []irqName{
	{"DEV-TxRx-", "", channel}, {"DEV-rx-", "", channel}, {"DEV-tx-", "", channel}, {"DEV", "", nothing},
}

// Of returns the IRQs of a device, ascending by number. all has the names of all IRQs. bus is
// the device's PCI address, parent the name of its parent device.
func Of(all map[int][]string, driver, dev, bus, parent string) []device.IRQ {
	expand := strings.NewReplacer("DEV", dev, "PCI", bus, "PARENT", parent)
	var irqs []device.IRQ
	for n, names := range all {
		for _, name := range names {
			if q, ok := matchIRQ(expand, irqNames[driver], name); ok {
				irqs = append(irqs, device.IRQ{Number: n, Name: name, Queue: q})
				break
			}
		}
	}
	slices.SortFunc(irqs, func(a, b device.IRQ) int { return cmp.Compare(a.Number, b.Number) })
	if driver == "gve" {
		gveQueues(irqs)
	}
	return irqs
}

// matchIRQ returns the channel in a name, or -1 if the name has none. The bool is false if no
// pattern matches.
func matchIRQ(expand *strings.Replacer, patterns []irqName, name string) (int, bool) {
	for _, p := range patterns {
		rest, ok := strings.CutPrefix(name, expand.Replace(p.prefix))
		if !ok {
			continue
		}
		rest, ok = strings.CutSuffix(rest, expand.Replace(p.suffix))
		if !ok {
			continue
		}
		first, last, several := strings.Cut(rest, "-")
		switch p.between {
		case nothing:
			if rest == "" {
				return -1, true
			}
		case number:
			if isNumber(rest) {
				return -1, true
			}
		case channel, channels:
			if several && (p.between == channel || !isNumber(last)) || !isNumber(first) {
				continue
			}
			n, err := strconv.Atoi(first)
			return n, err == nil
		}
	}
	return 0, false
}

func isNumber(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// gveQueues replaces each notify block's number with its queue's number. The first half of the
// blocks serves transmit queues in order, the second half receive queues (gve.h:
// gve_rx_idx_to_ntfy).
func gveQueues(irqs []device.IRQ) {
	blocks := 0
	for _, i := range irqs {
		blocks = max(blocks, i.Queue+1)
	}
	for i := range irqs {
		if irqs[i].Queue >= blocks/2 && irqs[i].Queue >= 0 {
			irqs[i].Queue -= blocks / 2
		}
	}
}

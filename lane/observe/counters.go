// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
)

// Counters reads the present counters of a device.
func Counters(dev string) (device.Counters, error) {
	c := device.Counters{Device: dev}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return c, err
	}
	c.Mono = now.Nano()
	t, err := tc.Open()
	if err != nil {
		return c, err
	}
	defer t.Close()
	if c.Classes, err = t.ClassCounters(dev); err != nil {
		return c, err
	}
	b := bpf.New(t)
	defer b.Close()
	if c.Departures, err = b.Departures(dev); err != nil && !errors.Is(err, fs.ErrPermission) {
		return c, err
	}
	return c, cardCounters(&c)
}

// cardCounters adds the counters of each queue, if the device is the lab's emulated card.
func cardCounters(c *device.Counters) error {
	link, err := net.InterfaceByName(c.Device)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Device, err)
	}
	card, err := emucard.Open(link.HardwareAddr)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer card.Close()
	rx, tx, err := card.Stats()
	if err != nil {
		return err
	}
	c.Source, c.Rx, c.Tx = "emulated card", queueCounters(rx), queueCounters(tx)
	return addDrops(c)
}

// addDrops adds the drops of the receive rings of the emulated card's veth (drivers/net/veth.c,
// veth_rq_stats_desc). A veth counts no drops of transmit queues.
func addDrops(c *device.Counters) error {
	e, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	stats, err := e.Stats(c.Device)
	if err != nil {
		return err
	}
	vethDrops(c.Rx, stats)
	return nil
}

func vethDrops(rx []device.QueueCounter, stats map[string]uint64) {
	for i := range rx {
		rx[i].Drops = stats[fmt.Sprintf("rx_queue_%d_drops", rx[i].Queue)]
	}
}

func queueCounters(cs []emucard.Counter) []device.QueueCounter {
	out := make([]device.QueueCounter, len(cs))
	for i, x := range cs {
		out[i] = device.QueueCounter{Queue: i, Packets: x.Packets, Bytes: x.Bytes}
	}
	return out
}

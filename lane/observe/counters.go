// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"

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
	if err := polledCounters(&c); err != nil {
		return c, err
	}
	return c, cardCounters(&c)
}

// polledCounters adds the counters of Intel's own ice driver.
func polledCounters(c *device.Counters) error {
	e, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer e.Close()
	if driver, err := e.Driver(c.Device); err != nil || driver != "ice" {
		return nil // its driver has no such counters
	}
	stats, err := e.Stats(c.Device)
	if err != nil {
		return err
	}
	c.Polled = polled(stats)
	return nil
}

// polledName matches the names of counters by what polled a receive queue, in the two spellings of the
// driver (ice_ethtool.h: ICE_RXQ_BUSY_POLL, ICE_RXQ_NOT_BUSY_POLL; release 2.6.6).
var polledName = regexp.MustCompile(`^rx_(?:q-)?([0-9]+)[._]pkt_(not_)?busy_poll$`)

func polled(stats map[string]uint64) []device.PolledCounter {
	byQueue := map[int]device.PolledCounter{}
	for name, n := range stats {
		m := polledName.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		q, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		p := byQueue[q]
		p.Queue = q
		if m[2] == "" {
			p.BusyPoll = n
		} else {
			p.NAPI = n
		}
		byQueue[q] = p
	}
	return slices.SortedFunc(maps.Values(byQueue),
		func(a, b device.PolledCounter) int { return cmp.Compare(a.Queue, b.Queue) })
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

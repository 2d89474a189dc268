// SPDX-License-Identifier: Apache-2.0

// Package phc reads a network card's clock, its PTP hardware clock (PHC), and relates it to the
// host's CLOCK_MONOTONIC. It changes nothing: it sets no clock and turns no timestamps on.
package phc

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Stamping is what a device's driver says of the timestamps of received packets.
type Stamping struct {
	Clock int  // /dev/ptpN; -1: the device has no clock
	All   bool // the device can stamp all packets
	// Filter is what it stamps now: HWTSTAMP_FILTER_NONE, ..._ALL, or some packets; -1: the driver does
	// not say.
	Filter int32
	TxType int32 // of transmitted packets: HWTSTAMP_TX_OFF, ..._ON, ...
}

// Look returns a device's Stamping, in the network namespace of the calling thread
// (ETHTOOL_GET_TS_INFO, SIOCGHWTSTAMP). A device without a clock is no error.
func Look(dev string) (Stamping, error) {
	s := Stamping{Clock: -1, Filter: -1}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, err
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolTsInfo(fd, dev)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("get timestamping of %s: %w", dev, err)
	}
	s.Clock = int(info.Phc_index)
	s.All = info.Rx_filters&(1<<unix.HWTSTAMP_FILTER_ALL) != 0
	if c, err := unix.IoctlGetHwTstamp(fd, dev); err == nil { // many drivers can set it and do not say it
		s.Filter, s.TxType = c.Rx_filter, c.Tx_type
	}
	return s, nil
}

// A Clock is an open PHC. It is not safe for concurrent use.
type Clock struct {
	fd      int
	precise bool // the card reads its clock and the host's at the same time
}

// Open opens /dev/ptpN to read it. It needs the rights to the file.
func Open(n int) (*Clock, error) {
	name := fmt.Sprintf("/dev/ptp%d", n)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	caps, err := unix.IoctlPtpClockGetcaps(fd)
	return &Clock{fd: fd, precise: err == nil && caps.Cross_timestamping != 0}, nil
}

// Close closes the clock.
func (c *Clock) Close() error { return unix.Close(c.fd) }

// samples is how often a reading without PTP_SYS_OFFSET_PRECISE reads the card. The shortest counts.
const samples = 5

// Read reads the clock and CLOCK_MONOTONIC. The error is EOPNOTSUPP if the driver reads the clock
// without the host's time.
func (c *Clock) Read() (Reading, error) {
	// The kernel gives CLOCK_REALTIME beside the card's clock. It may be set meanwhile.
	for range 3 {
		before, early := realOffset()
		card, wall, slack, err := c.read()
		if err != nil {
			return Reading{}, err
		}
		after, late := realOffset()
		if slack += early + late; max(before-after, after-before) <= early+late {
			return Reading{PHC: card, Mono: wall - after, Error: slack}, nil
		}
	}
	return Reading{}, errors.New("CLOCK_REALTIME is set all the time")
}

// read returns the card's time and CLOCK_REALTIME, and by how much this may be wrong, in ns.
func (c *Clock) read() (card, wall, slack int64, err error) {
	if c.precise {
		v, err := unix.IoctlPtpSysOffsetPrecise(c.fd)
		if err == nil {
			return nano(v.Device), nano(v.Realtime), 0, nil
		}
		c.precise = false // some drivers find only now that the machine cannot
	}
	v, err := unix.IoctlPtpSysOffsetExtended(c.fd, samples)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read the card's clock: %w", err)
	}
	best := v.Ts[0]
	for _, s := range v.Ts[1:samples] {
		if nano(s[2])-nano(s[0]) < nano(best[2])-nano(best[0]) {
			best = s
		}
	}
	window := nano(best[2]) - nano(best[0])
	return nano(best[1]), nano(best[0]) + window/2, window/2 + 1, nil
}

func nano(t unix.PtpClockTime) int64 { return t.Sec*int64(time.Second) + int64(t.Nsec) }

// realOffset returns CLOCK_REALTIME - CLOCK_MONOTONIC, and by how much it may be wrong, in ns.
func realOffset() (offset, slack int64) {
	slack = 1 << 62
	for range 3 {
		var a, wall, b unix.Timespec
		// These clocks cannot fail.
		_ = errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &a), unix.ClockGettime(unix.CLOCK_REALTIME, &wall),
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &b))
		if d := (b.Nano()-a.Nano())/2 + 1; d < slack {
			offset, slack = wall.Nano()-a.Nano()-d, d
		}
	}
	return offset, slack
}

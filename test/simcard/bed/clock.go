// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// HwTstamp configures the card's timestamps (SIOCSHWTSTAMP) and returns the driver's answer.
func HwTstamp(t *testing.T, txType, rxFilter int32) (unix.HwTstampConfig, error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	c := unix.HwTstampConfig{Tx_type: txType, Rx_filter: rxFilter}
	if err := unix.IoctlSetHwTstamp(fd, Dev, &c); err != nil {
		return c, err
	}
	got, err := unix.IoctlGetHwTstamp(fd, Dev)
	must.Do(t, err)
	return *got, nil
}

// StampReceived makes the card stamp all packets that it receives, or none.
func StampReceived(t *testing.T, on bool) {
	t.Helper()
	filter := int32(unix.HWTSTAMP_FILTER_NONE)
	if on {
		filter = unix.HWTSTAMP_FILTER_ALL
	}
	_, err := HwTstamp(t, unix.HWTSTAMP_TX_OFF, filter)
	must.Do(t, err)
}

// TsInfo returns what the driver says of the card's timestamps.
func TsInfo(t *testing.T) *unix.EthtoolTsInfo {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolTsInfo(fd, Dev)
	must.Do(t, err)
	return info
}

// Clock opens the card's clock until the test ends or the returned function is called, which is
// needed before Unplug.
func Clock(t *testing.T) (fd int, done func()) {
	t.Helper()
	name := fmt.Sprintf("/dev/ptp%d", TsInfo(t).Phc_index)
	Until(t, name, func() (ok bool) {
		var err error
		fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err == nil
	})
	open := true
	done = func() {
		if open {
			unix.Close(fd)
		}
		open = false
	}
	t.Cleanup(done)
	return fd, done
}

// StepClock adds ns to the card's clock at once.
func StepClock(t *testing.T, fd int, ns int64) {
	t.Helper()
	sec, rest := ns/1e9, ns%1e9
	if rest < 0 {
		sec, rest = sec-1, rest+1e9
	}
	_, err := unix.ClockAdjtime(unix.FdToClockID(fd), &unix.Timex{Modes: unix.ADJ_SETOFFSET | unix.ADJ_NANO,
		Time: unix.Timeval{Sec: sec, Usec: rest}})
	must.Do(t, err)
}

// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

func nano(t unix.PtpClockTime) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// within fails unless got is want, give or take slack.
func within(t *testing.T, what string, got, want, slack int64) {
	t.Helper()
	if d := got - want; d > slack || d < -slack {
		t.Errorf("%s: %d, want %d within %d", what, got, want, slack)
	}
}

// TestClock reads, steps and slews the card's clock, which drifts.
func TestClock(t *testing.T) {
	const offset, drift = -7e12, 100000
	bed.Plug(t, "queues=2", "clock_precise=1", "clock_offset=-7000000000000", "clock_drift=100000")
	fd, _ := bed.Clock(t)
	read := func() (card, host, raw int64) {
		v, err := unix.IoctlPtpSysOffsetPrecise(fd)
		must.Do(t, err)
		return nano(v.Device), nano(v.Realtime), nano(v.Monoraw)
	}
	const second = int64(time.Second)
	card, host, _ := read()
	within(t, "offset", card-host, offset, second)
	rate := func() int64 { // parts per 10^9
		card, _, raw := read()
		var card2, raw2 int64
		bed.Until(t, "some time", func() bool {
			card2, _, raw2 = read()
			return raw2-raw > second/5
		})
		return ((card2 - card) - (raw2 - raw)) * second / (raw2 - raw)
	}
	within(t, "drift", rate(), drift, 100)
	_, err := unix.ClockAdjtime(unix.FdToClockID(fd), &unix.Timex{Modes: unix.ADJ_FREQUENCY, Freq: -200 << 16})
	must.Do(t, err)
	within(t, "drift, adjusted by -200 ppm", rate(), drift-200000, 100)
	bed.StepClock(t, fd, 3e12)
	card, host, _ = read()
	within(t, "offset after a step", card-host, offset+3e12, second)
	must.Do(t, unix.ClockSettime(unix.FdToClockID(fd), &unix.Timespec{Sec: 5000}))
	card, _, _ = read()
	within(t, "time after it was set", card, 5000*second, second)
	v, err := unix.IoctlPtpSysOffsetExtended(fd, 3)
	must.Do(t, err)
	for _, s := range v.Ts[:3] {
		if nano(s[0]) > nano(s[2]) || nano(s[2])-nano(s[0]) > second {
			t.Errorf("a sample from %d to %d", nano(s[0]), nano(s[2]))
		}
		within(t, "time of a sample", nano(s[1]), 5000*second, 10*second)
	}
}

// stamps sends datagrams to the card and returns the kernel's and the card's timestamp of
// one, in ns; 0: none.
func stamps(t *testing.T, f bed.Flow) (kernel, card int64) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|
		unix.SOF_TIMESTAMPING_SOFTWARE|unix.SOF_TIMESTAMPING_RX_HARDWARE|unix.SOF_TIMESTAMPING_RAW_HARDWARE))
	must.Do(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Port: int(f.Dst.Port()), Addr: f.Dst.Addr().As4()}))
	// The kernel begins to stamp some time after the socket asks for it.
	bed.Until(t, "the kernel's timestamp", func() bool {
		bed.Send(t, 1, f)
		b, oob := make([]byte, 100), make([]byte, 200)
		_, n, _, _, err := unix.Recvmsg(fd, b, oob, 0)
		must.Do(t, err)
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		must.Do(t, err)
		kernel, card = 0, 0
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING {
				at := func(i int) int64 {
					return int64(binary.NativeEndian.Uint64(m.Data[16*i:]))*1e9 +
						int64(binary.NativeEndian.Uint64(m.Data[16*i+8:]))
				}
				kernel, card = at(0), at(2)
			}
		}
		return kernel != 0
	})
	return kernel, card
}

// TestTimestamps: the card stamps received packets if this is turned on, when they arrive and not
// when it interrupts.
func TestTimestamps(t *testing.T) {
	const offset = 5e12
	bed.Plug(t, "queues=1", "channels=1", "clock_offset=5000000000000")
	if info := bed.TsInfo(t); info.Rx_filters&(1<<unix.HWTSTAMP_FILTER_ALL) == 0 || info.Phc_index < 0 {
		t.Errorf("%+v", info)
	}
	f := bed.Flow{Src: bed.In(1024, 9).Src, Dst: netip.AddrPortFrom(bed.CardAddr, 9)}
	bed.Sh(t, "ethtool -C sim0 rx-usecs 8000")
	if kernel, card := stamps(t, f); kernel == 0 || card != 0 {
		t.Errorf("stamps %d and %d, want only the kernel's", kernel, card)
	}
	got, err := bed.HwTstamp(t, unix.HWTSTAMP_TX_OFF, unix.HWTSTAMP_FILTER_PTP_V2_EVENT)
	if err != nil || got.Rx_filter != unix.HWTSTAMP_FILTER_ALL {
		t.Errorf("%+v, %v, want the filter for all packets", got, err)
	}
	for _, usecs := range []int64{8000, 0} {
		bed.Sh(t, map[int64]string{8000: "ethtool -C sim0 rx-usecs 8000", 0: "ethtool -C sim0 rx-usecs 0"}[usecs])
		kernel, card := stamps(t, f)
		wait := kernel - (card - offset)
		t.Logf("with %d us of moderation, the kernel's stamp is %d ns after the card's", usecs, wait)
		// The offset was exact when the card was made, to some microseconds.
		if card == 0 || wait < usecs*1000-1e6 || wait > usecs*1000+1e9 {
			t.Errorf("the kernel's stamp is %d ns after the card's, with %d us of moderation", wait, usecs)
		}
	}
	if _, err := bed.HwTstamp(t, unix.HWTSTAMP_TX_ON, unix.HWTSTAMP_FILTER_ALL); !errors.Is(err, unix.ERANGE) {
		t.Errorf("transmit timestamps: %v, want ERANGE", err)
	}
	bed.StampReceived(t, false)
	if _, card := stamps(t, f); card != 0 {
		t.Errorf("stamp %d after it was turned off", card)
	}
}

// TestNoClock: a card without a clock has no timestamps.
func TestNoClock(t *testing.T) {
	bed.Plug(t, "queues=1", "clock=0")
	if info := bed.TsInfo(t); info.Phc_index != -1 {
		t.Errorf("%+v", info)
	}
	if _, err := bed.HwTstamp(t, unix.HWTSTAMP_TX_OFF, unix.HWTSTAMP_FILTER_ALL); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("timestamps: %v, want EOPNOTSUPP", err)
	}
}

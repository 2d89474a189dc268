// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// instants are the kernel's clocks at one moment, ns (clock_gettime(2)).
type instants struct{ mono, real, boot, raw int64 }

func clocks() (t instants, err error) {
	for _, c := range []struct {
		id   int32
		into *int64
	}{{unix.CLOCK_MONOTONIC, &t.mono}, {unix.CLOCK_REALTIME, &t.real}, {unix.CLOCK_BOOTTIME, &t.boot},
		{unix.CLOCK_MONOTONIC_RAW, &t.raw}} {
		var ts unix.Timespec
		if err := unix.ClockGettime(c.id, &ts); err != nil {
			return t, fmt.Errorf("clock %d: %w", c.id, err)
		}
		*c.into = ts.Nano()
	}
	return t, nil
}

const (
	// clockSlack is how far apart in time two successive readings may be. The thread may lose its
	// processor between them.
	clockSlack = 50 * time.Millisecond
	// clockSlew is how much faster or slower than the hardware's clock a clock may run, as a
	// share: twice NTP's limit (MAXFREQ of include/linux/timex.h, 500 ppm).
	clockSlew = 0.001
)

// since checks what happened to the clocks since the earlier moment a. Latencies are differences
// of CLOCK_MONOTONIC. So a wrong rate of that clock and a suspend of the machine are errors. If the
// time of day was set, that is only a warning.
func (t instants) since(a instants) (warning string, err error) {
	mono, wall, boot, raw := t.mono-a.mono, t.real-a.real, t.boot-a.boot, t.raw-a.raw
	if asleep := time.Duration(boot - mono); asleep > clockSlack {
		return "", fmt.Errorf("the machine was suspended for %v", asleep.Round(time.Millisecond))
	}
	if off := float64(mono - raw); math.Abs(off) > float64(clockSlack)+clockSlew*float64(raw) {
		return "", fmt.Errorf("CLOCK_MONOTONIC ran %.2f %% off the hardware's clock: latencies are off by as much",
			100*off/float64(raw))
	}
	if step := time.Duration(wall - mono); math.Abs(float64(step)) > float64(clockSlack)+clockSlew*float64(mono) {
		return fmt.Sprintf("the clock was set by %v: latencies use CLOCK_MONOTONIC and hold, times of day do not",
			step.Round(time.Millisecond)), nil
	}
	return "", nil
}

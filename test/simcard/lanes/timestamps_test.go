// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/live/waits"
	"github.com/niclane/niclane/test/simcard/bed"
)

// stamped sends requests until one more begins at the card's timestamp: waits knows the card's clock.
func stamped(t *testing.T, c *waits.Collector, client net.Conn) {
	t.Helper()
	first, err := c.Snapshot()
	must.Do(t, err)
	bed.Until(t, "the card's clock is known", func() bool {
		ask(t, client, 5)
		s, err := c.Snapshot()
		must.Do(t, err)
		return s.Services[0].Stamped > first.Services[0].Stamped
	})
}

// seen waits until n requests are counted since before, and returns what was seen.
func seen(t *testing.T, c *waits.Collector, before waits.Snapshot, n uint64) (s waits.Snapshot) {
	t.Helper()
	bed.Until(t, "the requests are counted", func() bool {
		now, err := c.Snapshot()
		must.Do(t, err)
		s = now.Sub(before)
		return s.Services[0].Requests >= n
	})
	return s
}

// TestCardTimestamps: card-to-stack has the moderation if the card stamps packets, by a clock that has
// another time and drifts, and does not have it otherwise. A clock that jumps gives no wrong times.
func TestCardTimestamps(t *testing.T) {
	const moderation, n = int64(2 * time.Millisecond), 100
	for name, precise := range map[string]string{"precise": "1", "sampled": "0"} {
		t.Run(name, func(t *testing.T) {
			bed.Plug(t, "queues=1", "channels=1", "clock_offset=-7000000000123", "clock_drift=100000", "clock_precise="+precise)
			bed.Sh(t, "ethtool -C sim0 rx-usecs 2000")
			client := echo(t)
			text := func(s waits.Snapshot) string {
				var b strings.Builder
				must.Do(t, s.Report(bed.Dev).Write(&b))
				return b.String()
			}

			c := openWaits(t)
			ask(t, client, n)
			s := seen(t, c, waits.Snapshot{}, n)
			if x := s.Services[0]; x.Stamped != 0 || x.Waits[waits.CardToStack].ValueAt(50) >= moderation {
				t.Errorf("without timestamps: %d stamped, P50 %d", x.Stamped, x.Waits[waits.CardToStack].ValueAt(50))
			}
			bed.Says(t, text(s), "hwstamp_ctl -i sim0 -r 1")
			must.Do(t, c.Close())

			bed.StampReceived(t, true)
			clock, done := bed.Clock(t)
			c = openWaits(t)
			stamped(t, c, client)
			before, err := c.Snapshot()
			must.Do(t, err)
			ask(t, client, n)
			s = seen(t, c, before, n)
			x := s.Services[0]
			card := x.Waits[waits.CardToStack]
			t.Log(text(s))
			// The timer of the moderation can be late in an emulated guest, but not early.
			if x.Stamped < x.Requests*9/10 || card.ValueAt(20) < moderation-moderation/50 || card.ValueAt(50) > 2*moderation {
				t.Errorf("%d of %d stamped, P20 %d, P50 %d, want %d and somewhat more", x.Stamped, x.Requests,
					card.ValueAt(20), card.ValueAt(50), moderation)
			}
			bed.Says(t, text(s), "card-to-stack begins at the card's timestamp for ")

			// A step forward makes packets seem to come from the future, one back from the past.
			for _, step := range []time.Duration{-3 * time.Second, 3 * time.Second, -100 * time.Millisecond, time.Hour} {
				stamped(t, c, client)
				before, err := c.Snapshot()
				must.Do(t, err)
				bed.StepClock(t, clock, int64(step))
				longest := ask(t, client, n)
				x := seen(t, c, before, n).Services[0]
				wait := time.Duration(x.Waits[waits.CardToStack].ValueAt(100))
				t.Logf("step of %v: %d of %d stamped, longest %v of %v", step, x.Stamped, x.Requests, wait, longest)
				// A bucket of the histogram is wider by 1/64 than its values.
				if wait > longest+longest/32 || x.Stamped == x.Requests || x.Stamped < x.Requests/2 {
					t.Errorf("after a step of %v: longest %v, of a request that took %v at most; %d of %d stamped", step, wait,
						longest, x.Stamped, x.Requests)
				}
			}
			s, err = c.Snapshot()
			must.Do(t, err)
			bed.Says(t, text(s), "the clock of sim0 jumped or changed its rate 4 times")

			// A new rate is no jump.
			_, err = unix.ClockAdjtime(unix.FdToClockID(clock), &unix.Timex{Modes: unix.ADJ_FREQUENCY, Freq: -200 << 16})
			must.Do(t, err)
			ask(t, client, n)
			s = seen(t, c, s, n)
			if x := s.Services[0]; x.Stamped < x.Requests*9/10 || x.Waits[waits.CardToStack].ValueAt(20) < moderation-moderation/20 {
				t.Errorf("after a change of rate: %d of %d stamped, P20 %d", x.Stamped, x.Requests,
					x.Waits[waits.CardToStack].ValueAt(20))
			}
			must.Do(t, c.Close())
			done()
			bed.Unplug(t)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/live/waits"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestCompletions checks that waits shows how late a card completes its transmissions: at once, or as
// late as its moderation of interrupts says. Received packets share the interrupt and are moderated
// too, so that an acknowledgement does not complete an answer earlier.
func TestCompletions(t *testing.T) {
	bed.Plug(t, "queues=1", "channels=1")
	at := netip.AddrPortFrom(bed.CardAddr, 6379)
	l, err := net.Listen("tcp", at.String())
	must.Do(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	w, err := waits.Open(t.Context(), waits.Options{Device: bed.Dev, FixedRate: true,
		Targets: []waits.Target{{Name: "echo", Protocol: "tcp", Ports: []uint16{at.Port()}}}})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, w.Close()) })
	const n = 20
	p50 := func(moderation time.Duration) (x waits.Service) {
		bed.Sh(t, fmt.Sprintf("ethtool -C sim0 rx-usecs %[1]d tx-usecs %[1]d", moderation.Microseconds()))
		before, err := w.Snapshot()
		must.Do(t, err)
		bed.Behind(t, func() {
			c, err := net.Dial("tcp", at.String())
			must.Do(t, err)
			defer c.Close()
			must.Do(t, c.SetDeadline(time.Now().Add(time.Minute)))
			b := make([]byte, 64)
			for range n {
				_, err := c.Write(b)
				must.Do(t, err)
				_, err = io.ReadFull(c, b)
				must.Do(t, err)
			}
		})
		bed.Until(t, "the completions", func() bool {
			s, err := w.Snapshot()
			must.Do(t, err)
			x = s.Sub(before).Services[0]
			return x.Waits[waits.Card].Count() >= n-n/4 // Linux 7.2 in a slow guest has left one out
		})
		t.Logf("moderation %v: card %+v, host %+v", moderation, x.Waits[waits.Card].Percentiles(),
			x.Waits[waits.Host].Percentiles())
		return x
	}
	const late = 8 * time.Millisecond // the card's limit is 8.16 ms
	if got := time.Duration(p50(0).Waits[waits.Card].ValueAt(50)); got > late/2 {
		t.Errorf("completions at once: P50 of card is %v", got)
	}
	x := p50(late)
	if got := time.Duration(x.Waits[waits.Card].ValueAt(50)); got < late-late/20 || got > late+late/2 {
		t.Errorf("completions %v late: P50 of card is %v", late, got)
	}
	if got := time.Duration(x.Waits[waits.Host].ValueAt(50)); got > late/2 {
		t.Errorf("completions %v late: P50 of host is %v, want less than half: it is no part of it", late, got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// moderated returns when the host gets each frame, in ns. The first frame that finds no interrupt on its
// way starts a timer of usecs. The interrupt comes when the timer ends, or with frame number most; 0: no
// such limit.
func moderated(frames []frame, usecs int64, most int) []int64 {
	out := make([]int64, len(frames))
	for i := 0; i < len(frames); {
		at := frames[i].due + usecs*1000
		j := i + 1
		for j < len(frames) && frames[j].due < at && (most == 0 || j-i < most) {
			j++
		}
		if j-i == most {
			at = min(at, frames[j-1].due)
		}
		for ; i < j; i++ {
			out[i] = at
		}
	}
	return out
}

// TestModeration checks the card's receive moderation frame by frame, for Poisson arrivals of 50,000
// frames per second.
func TestModeration(t *testing.T) {
	for _, tt := range []struct {
		usecs int64
		most  int
	}{{0, 0}, {50, 0}, {500, 0}, {500, 8}} {
		t.Run(fmt.Sprintf("%d_%d", tt.usecs, tt.most), func(t *testing.T) {
			if !inGuest(t, "simcard.queues=1") {
				return
			}
			wire(t, bed.Dev)
			run(t, fmt.Sprintf("ethtool -C sim0 adaptive-rx off rx-usecs %d rx-frames %d", tt.usecs, tt.most))
			r := rand.New(rand.NewPCG(7, 7))
			frames := make([]frame, 5000)
			at := 0.0
			for i := range frames {
				at += r.ExpFloat64() * 20_000
				frames[i] = frame{due: int64(at), size: 64}
			}
			want, worst := moderated(frames, tt.usecs, tt.most), int64(0)
			for i, got := range play(t, bed.Wire, bed.Dev, frames) {
				if got < 0 {
					t.Fatalf("frame %d is lost", i)
				}
				if worst = max(worst, got-want[i], want[i]-got); worst > resolution {
					t.Fatalf("frame %d of %d ns: the host got it at %d, want %d", i, frames[i].due, got, want[i])
				}
			}
			t.Logf("a frame differs by at most %d ns", worst)
		})
	}
}

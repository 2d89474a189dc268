// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/niclane/niclane/bench/stats"
)

// TestOrder checks the balance of a block: each variant is at each place, and follows each other one
// within a round, equally often.
func TestOrder(t *testing.T) {
	for n := 2; n <= 7; n++ {
		o := newOrder(n, 42)
		first := o.next()
		rows := append([][]int{first}, o.left...)
		place, follows := map[string]int{}, map[string]int{}
		for _, row := range rows {
			if sorted := slices.Sorted(slices.Values(row)); sorted[0] != 0 || len(slices.Compact(sorted)) != n {
				t.Errorf("%d variants: round %v", n, row)
			}
			for i, v := range row {
				place[fmt.Sprint(i, v)]++
				if i > 0 {
					follows[fmt.Sprint(row[i-1], v)]++
				}
			}
		}
		if len(rows) < blockRounds || len(place) != n*n || len(follows) != n*(n-1) {
			t.Errorf("%d variants: %d rounds, %d places, %d pairs", n, len(rows), len(place), len(follows))
		}
		for _, counts := range []map[string]int{place, follows} {
			for what, count := range counts {
				for _, other := range counts {
					if count != other {
						t.Errorf("%d variants: %s is there %d times, another one %d times", n, what, count, other)
					}
				}
			}
		}
	}
	same, other := newOrder(3, 7), newOrder(3, 8)
	differ := false
	for again := newOrder(3, 7); len(again.left) > 0 || !differ; {
		a, b, c := same.next(), again.next(), other.next()
		if !slices.Equal(a, b) {
			t.Fatalf("one seed, two orders: %v and %v", a, b)
		}
		differ = differ || !slices.Equal(a, c)
	}
}

// TestOrderKeepsIntervals checks that 5 % of the intervals miss the truth although each second depends on
// the second before.
func TestOrderKeepsIntervals(t *testing.T) {
	const runs = 8000
	for _, phi := range []float64{0, 0.5, 0.8, 0.95} {
		miss := 0
		for run := range runs {
			random := rand.New(rand.NewPCG(uint64(run), 3))
			o := newOrder(2, random.Uint64())
			level, variant := 0.0, -1
			second := func() float64 {
				level = phi*level + math.Sqrt(1-phi*phi)*random.NormFloat64()
				return level
			}
			var pairs []stats.Pair
			for range 20 {
				var v [2]int64
				for _, x := range o.next() {
					if x != variant {
						second() // settling
						variant = x
					}
					sum := 0.0
					for range 5 {
						sum += second() / 5
					}
					v[x] = int64(1e9 * math.Exp(0.15*sum+0.05*random.NormFloat64()))
				}
				pairs = append(pairs, stats.Pair{Variant: v[1], Base: v[0]})
			}
			r, err := stats.PairedRatio(pairs)
			if err != nil {
				t.Fatal(err)
			}
			if r.Low > 1 || r.High < 1 {
				miss++
			}
		}
		if share := float64(miss) / runs; share > 0.058 {
			t.Errorf("phi %v: %.1f %% of the intervals miss the truth, want 5 %%", phi, 100*share)
		}
	}
}

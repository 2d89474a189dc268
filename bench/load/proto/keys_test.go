// SPDX-License-Identifier: Apache-2.0

package proto

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
)

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		n, keyBytes, valueBytes int
		format                  string
	}{
		{1000, 16, 64, "k%015d"},
		{1000, 4, 64, "k%03d"},
		{20_000_000, 8, 64, "%08d"}, // as in the memcached paper
		{10, 250, 1, "k%0249d"},
		{1, 1, 3, "%d"},
	} {
		k, err := NewKeys(tt.n, tt.keyBytes, tt.valueBytes, 0)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			i := uint32(rng.IntN(tt.n)) >> rng.IntN(20)
			if got, want := string(k.Key(i)), fmt.Sprintf(tt.format, i); got != want {
				t.Fatalf("key %d: %q, want %q", i, got, want)
			}
			v := k.AppendValue(nil, i)
			if len(v) != tt.valueBytes {
				t.Fatalf("value of %d bytes, want %d", len(v), tt.valueBytes)
			}
			from := rng.IntN(len(v) + 1)
			to := from + rng.IntN(len(v)-from+1)
			if !k.Matches(v[from:to], i, from) {
				t.Fatalf("value %q does not match itself from %d to %d", v, from, to)
			}
			if from < to {
				v[from+rng.IntN(to-from)] ^= 1
				if k.Matches(v[from:to], i, from) {
					t.Fatalf("changed value %q matches from %d to %d", v, from, to)
				}
			}
			if k.Matches(append(v, 0), i, 0) {
				t.Fatal("a longer value matches")
			}
		}
	}
}

// TestPick: gets, sets and keys must have the requested proportions.
func TestPick(t *testing.T) {
	k, err := NewKeys(10, 2, 1, 0.2)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var keys [10]int
	sets := 0
	for range 100_000 {
		p := k.Pick(rng.Uint64())
		keys[p.Index]++
		if p.Op == Set {
			sets++
		}
	}
	if sets < 19_000 || sets > 21_000 {
		t.Errorf("%d sets of 100000, want about 20000", sets)
	}
	for i, n := range keys {
		if n < 9_000 || n > 11_000 {
			t.Errorf("key %d: %d of 100000, want about 10000", i, n)
		}
	}
	for share, want := range map[float64]Op{0: Get, 1: Set} {
		k, err := NewKeys(10, 2, 1, share)
		if err != nil {
			t.Fatal(err)
		}
		for _, random := range []uint64{0, 1<<64 - 1} {
			if got := k.Pick(random).Op; got != want {
				t.Errorf("share %v: %d, want %d", share, got, want)
			}
		}
	}
}

func TestNewKeysErrors(t *testing.T) {
	_, err := NewKeys(-1, 251, 0, 2)
	errtest.Says(t, "all", err, "keys -1", "keyBytes 251", "valueBytes 0", "setShare 2")
	_, err = NewKeys(1001, 3, 1, 0)
	errtest.Says(t, "keys that cannot differ", err, "keyBytes 3: want 4 to 250 for 1001 keys")
}

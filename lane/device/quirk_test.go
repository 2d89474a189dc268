// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestFindQuirk(t *testing.T) {
	tests := []struct {
		driver, release string
		want            bool
	}{
		{"veth", "6.18.44-fc-v595", true},
		{"veth", "5.13.0-rc1", true},
		{"veth", "5.13", true},
		{"veth", "5.12.19", false},
		{"veth", "4.19.0", false},
		{"veth", "10.0.0", true},
		{"veth", "5.130.0", true},
		{"vethx", "6.18.44", false},
		{"", "6.18.44", false},
		{"veth", "", false},
		{"veth", "six.18", false},
	}
	for _, tt := range tests {
		q, got := FindQuirk(QuirkNAPIOrder, tt.driver, tt.release)
		if got != tt.want || got && (q.Driver != tt.driver || q.Source == "") {
			t.Errorf("FindQuirk(%q, %q) = %+v, %v, want %v", tt.driver, tt.release, q, got, tt.want)
		}
	}
}

func TestQuirkCovers(t *testing.T) {
	q := Quirk{From: "5.13", Before: "6.2"}
	for v, want := range map[[2]int]bool{{5, 12}: false, {5, 13}: true, {6, 1}: true, {6, 2}: false, {7, 0}: false} {
		if got := q.covers(v); got != want {
			t.Errorf("%v: %v, want %v", v, got, want)
		}
	}
}

func TestQuirkTable(t *testing.T) {
	for _, q := range quirks {
		if q.Source == "" || q.Kind == "" || q.Driver == "" {
			t.Errorf("%+v is not complete", q)
		}
		for _, v := range []string{q.From, q.Before} {
			if _, ok := parseRelease(v); v != "" && !ok {
				t.Errorf("%+v: %q is not a release", q, v)
			}
		}
	}
	if !slices.IsSortedFunc(quirks[:], func(a, b Quirk) int { return cmp.Compare(a.Driver, b.Driver) }) {
		t.Error("the table is not sorted by driver")
	}
}

func TestAssignNAPIs(t *testing.T) {
	rx := func(napis ...uint32) []Queue {
		var qs []Queue
		for i, n := range napis {
			qs = append(qs, Queue{ID: i, Type: "rx", NAPI: n})
		}
		return append(qs, Queue{ID: 0, Type: "tx"})
	}
	tests := []struct {
		name   string
		driver string
		queues []Queue
		napis  []uint32
		want   []Queue
		used   bool
	}{
		{"ascending, whatever the order of the dump", "veth", rx(0, 0, 0), []uint32{12, 11, 10}, rx(10, 11, 12), true},
		{"fewer NAPIs than queues", "veth", rx(0, 0, 0), []uint32{11, 10}, rx(0, 0, 0), false},
		{"more NAPIs than queues", "veth", rx(0, 0), []uint32{12, 11, 10}, rx(0, 0), false},
		{"no NAPIs", "veth", rx(0, 0), nil, rx(0, 0), false},
		{"the driver says", "veth", rx(11, 10), []uint32{11, 10}, rx(11, 10), false},
		{"the driver says for some", "veth", rx(11, 0), []uint32{11, 10}, rx(11, 0), false},
		{"Intel's own ice", "ice", rx(0, 0), []uint32{11, 10}, rx(10, 11), true},
		{"another driver", "tun", rx(0, 0), []uint32{11, 10}, rx(0, 0), false},
		{"no queues", "veth", nil, nil, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.Clone(tt.queues)
			_, used := AssignNAPIs(tt.driver, "6.18.0", got, tt.napis)
			if used != tt.used {
				t.Errorf("quirk used: %v, want %v", used, tt.used)
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	queues := rx(0, 0, 0)
	slices.Reverse(queues)
	AssignNAPIs("veth", "6.18.0", queues, []uint32{12, 11, 10})
	for _, q := range queues {
		if q.Type == "rx" && q.NAPI != uint32(10+q.ID) {
			t.Errorf("queue %d has NAPI %d", q.ID, q.NAPI)
		}
	}
}

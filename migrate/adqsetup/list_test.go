// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"slices"
	"strings"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		text         string
		items, twice []string
	}{
		{"80", []string{"80"}, nil},
		{"99, 80", []string{"80", "99"}, nil},
		{"1-3,2,3-4, 080", []string{"1-4", "80"}, []string{"2", "3"}},
		{"3-1", []string{"3-1"}, nil},
		{"1,,2", []string{"1", "", "2"}, nil},
		{"1,+2", []string{"1", "+2"}, nil},
		{"99,101", []string{"99", "101"}, nil},
		{"-1", []string{"-1"}, nil},
		{"90-101,5", []string{"90-101", "5"}, nil},
		{"1-100,1-100,5", []string{"1-100", "1-100", "5"}, nil}, // too many repetitions
	} {
		items, twice := numbers(c.text, 100)
		if !slices.Equal(items, c.items) || !slices.Equal(twice, c.twice) {
			t.Errorf("numbers(%q): got %q, %q, want %q, %q", c.text, items, twice, c.items, c.twice)
		}
	}
}

// TestRepetitionsAreBounded checks a list of half a billion ports, which fits into a file of 64
// KiB.
func TestRepetitionsAreBounded(t *testing.T) {
	list := strings.Repeat("1-65535,", 8_000) + "1"
	data := []byte("[globals]\ndev = eth0\n[a]\nqueues = 1\nports = " + list + "\n")
	_, err := Convert("adq.conf", "", data)
	if err == nil || !strings.Contains(err.Error(), "adq.conf:5: a.ports") {
		t.Errorf("got %v, want an error in line 5", err)
	}
}

func TestAddresses(t *testing.T) {
	items, masked := addresses("10.0.0.1, fd00::1,10.0.0.9/24,10.0.0.0/24,nowhere")
	if want := []string{"10.0.0.1", "fd00::1", "10.0.0.0/24", "nowhere"}; !slices.Equal(items, want) {
		t.Errorf("items: got %q, want %q", items, want)
	}
	if want := []string{"10.0.0.9/24"}; !slices.Equal(masked, want) {
		t.Errorf("masked: got %q, want %q", masked, want)
	}
}

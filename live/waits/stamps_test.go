// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/phc"
)

// TestCardClocks: a card that could stamp packets and does not has a note that says how; the others
// have none. None of these cards has a clock that can be read.
func TestCardClocks(t *testing.T) {
	const missing = 99999
	for name, c := range map[string]struct {
		stamping phc.Stamping
		err      error
		want     string // part of the only note; "": no note
	}{
		"no clock":           {phc.Stamping{Clock: -1, Filter: -1}, nil, ""},
		"stamps only PTP":    {phc.Stamping{Clock: missing, Filter: unix.HWTSTAMP_FILTER_NONE}, nil, ""},
		"off":                {phc.Stamping{Clock: missing, All: true}, nil, "is off; hwstamp_ctl -i eth0 -r 1 (linuxptp)"},
		"off, transmit on":   {phc.Stamping{Clock: missing, All: true, TxType: 1}, nil, "hwstamp_ctl -i eth0 -t 1 -r 1"},
		"gone":               {phc.Stamping{Clock: -1}, unix.ENODEV, "no such device"},
		"on, without a file": {phc.Stamping{Clock: missing, All: true, Filter: unix.HWTSTAMP_FILTER_ALL}, nil, "/dev/ptp99999"},
		"the driver does not say": {phc.Stamping{Clock: missing, All: true, Filter: -1}, nil, "the timestamps of eth0 are " +
			"not used: open /dev/ptp99999: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			k := openCardClocks(map[int]string{2: "eth0"}, func(string) (phc.Stamping, error) { return c.stamping, c.err })
			if len(k.clocks) != 0 {
				t.Errorf("%d clocks", len(k.clocks))
			}
			notes := strings.Join(k.report(), "\n")
			if (notes == "") != (c.want == "") || !strings.Contains(notes, c.want) || strings.Contains(notes, "\n") {
				t.Errorf("notes %q, want one with %q", notes, c.want)
			}
			if err := errors.Join(k.give(nil), k.follow(t.Context(), nil)); err != nil {
				t.Error(err)
			}
			k.close()
		})
	}
	note := stampNote("eth0", phc.Stamping{All: true, Filter: unix.HWTSTAMP_FILTER_PTP_V2_EVENT}, nil)
	if !strings.Contains(note, "leaves out") {
		t.Errorf("a filter of PTP: %q", note)
	}
}

// TestStampedText: the table says how many requests have the card's timestamp.
func TestStampedText(t *testing.T) {
	for stamped, want := range map[uint64]string{0: "", 150: "card's timestamp for 75 % of the requests"} {
		x := Service{Target: Target{Name: "cache"}, Requests: 200, Stamped: stamped}
		s := Snapshot{Services: []Service{x}, Notes: []string{"a note"}}
		var b strings.Builder
		if err := s.Report("eth0").Write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "card's timestamp") != (want != "") {
			t.Errorf("%d of 200 stamped:\n%s", stamped, &b)
		}
		if !strings.Contains(b.String(), "Note: a note.") {
			t.Errorf("no note:\n%s", &b)
		}
	}
}

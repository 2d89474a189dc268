// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// A fakeTable holds a card's rules by location and counts the requests.
type fakeTable struct {
	rules map[uint32][]byte
	asked int
}

func (f *fakeTable) ioctl(_ string, buf []byte) error {
	f.asked++
	at := binary.NativeEndian.Uint32(buf[rxnfcSpec+specLocation:])
	switch binary.NativeEndian.Uint32(buf) {
	case unix.ETHTOOL_GRXCLSRLCNT:
		binary.NativeEndian.PutUint32(buf[rxnfcRuleCnt:], uint32(len(f.rules)))
		binary.NativeEndian.PutUint64(buf[rxnfcData:], 1024)
	case unix.ETHTOOL_GRXCLSRLALL:
		for i, loc := range slices.Sorted(maps.Keys(f.rules)) {
			binary.NativeEndian.PutUint32(buf[rxnfcRuleLocs+4*i:], loc)
		}
	case unix.ETHTOOL_GRXCLSRULE:
		if f.rules[at] == nil {
			return unix.ENOENT
		}
		copy(buf[rxnfcFlow:], f.rules[at][rxnfcFlow:])
	case unix.ETHTOOL_SRXCLSRLINS:
		f.rules[at] = slices.Clone(buf)
	case unix.ETHTOOL_SRXCLSRLDEL:
		delete(f.rules, at)
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

func portRule(port int) device.Rule {
	return device.Rule{Dev: "d0", Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: uint16(port)},
		Queue: port % 7}
}

// TestTable: AddRule and DeleteRule take a few requests for each rule, however many rules the
// table has.
func TestTable(t *testing.T) {
	const n = 100
	f := &fakeTable{rules: map[uint32][]byte{}}
	c := &Client{card: f}
	for i := range n {
		must.Do(t, c.AddRule(portRule(i+1)))
	}
	if err := c.AddRule(portRule(5)); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a rule that is there: %v", err)
	}
	if got, err := c.Rules("d0"); err != nil || len(got.Rules) != n {
		t.Fatalf("%d rules, %v", len(got.Rules), err)
	}
	for i := range n {
		r := portRule(i + 1)
		if now, there, err := c.Rule(r); err != nil || !there || now != r {
			t.Fatalf("%+v is read as %+v, there: %v, %v", r, now, there, err)
		}
		must.Do(t, c.DeleteRule(r))
		if _, there, err := c.Rule(r); err != nil || there {
			t.Fatalf("%+v is still there, %v", r, err)
		}
	}
	if len(f.rules) != 0 {
		t.Errorf("%d rules are left", len(f.rules))
	}
	if f.asked > 20*n {
		t.Errorf("%d requests for %d rules", f.asked, n)
	}
}

// TestTableOfOthers: the client has read a table. It notices when another process changes that
// table.
func TestTableOfOthers(t *testing.T) {
	f := &fakeTable{rules: map[uint32][]byte{}}
	c, other := &Client{card: f}, &Client{card: f}
	for _, port := range []int{1, 2, 3} {
		must.Do(t, c.AddRule(portRule(port)))
	}
	if _, there, err := c.Rule(portRule(3)); err != nil || !there {
		t.Fatalf("there: %v, %v", there, err)
	}
	// The other client deletes rule 1, puts another rule in its place, and adds rule 1 with
	// another target elsewhere.
	must.Do(t, other.DeleteRule(portRule(1)))
	must.Do(t, other.AddRule(portRule(9)))
	moved := portRule(1)
	moved.Queue = 6
	must.Do(t, other.AddRule(moved))
	if now, there, err := c.Rule(portRule(1)); err != nil || !there || now != moved {
		t.Errorf("%+v, there: %v, %v; want %+v", now, there, err, moved)
	}
	if err := c.DeleteRule(portRule(1)); err == nil ||
		!strings.Contains(err.Error(), "it leads to queue 6, not queue 1") {
		t.Errorf("a rule that somebody else has changed: %v", err)
	}
	if err := c.MoveRule(portRule(1), moved); err == nil {
		t.Error("a rule that somebody else has changed was changed")
	}
	must.Do(t, c.DeleteRule(moved))
	got, err := other.Rules("d0")
	if err != nil || got.find(portRule(1)) >= 0 || got.find(portRule(9)) < 0 || len(got.Rules) != 3 {
		t.Errorf("%+v, %v", got.Rules, err)
	}
	// The other client replaces a rule that c has seen. c finds the new rule after it has
	// read all rules again.
	must.Do(t, other.DeleteRule(portRule(2)))
	must.Do(t, other.AddRule(portRule(8)))
	c.Anew()
	if _, there, err := c.Rule(portRule(8)); err != nil || !there {
		t.Errorf("a rule in the place of another: there: %v, %v", there, err)
	}
}

type noRules struct{}

func (noRules) ioctl(string, []byte) error { return unix.EOPNOTSUPP }

// TestReadRule: Read returns nil if the driver has no rules, and an error if the table changes
// during the read.
func TestReadRule(t *testing.T) {
	if got, err := (&Client{card: noRules{}}).Read(portRule(1)); got != nil || err != nil {
		t.Errorf("no rules: %v, %v; want nil, nil", got, err)
	}
	gone := &fakeTable{rules: map[uint32][]byte{7: nil}}
	if got, err := (&Client{card: gone}).Read(portRule(1)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a rule that went meanwhile: %v, %v; want ENOENT", got, err)
	}
}

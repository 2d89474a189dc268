// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
)

// keysOf returns the keys of the records, in order.
func keysOf(records []journal.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Key())
	}
	return out
}

// TestDamagedProgress: if a progress line cannot be read, every step counts as made, except those
// whose undo was recorded.
func TestDamagedProgress(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s"), here)
	j := begin(t, s, head(steps(step(nil, class("1:1", 8)), step(nil, class("1:2", 8)), step(nil, class("1:3", 8)))))
	record(t, j, "begin 0", "begin 1", "undo 1", "undone 1")
	good := read(t, j.Path())
	for _, line := range []string{"jumped 0", "begin 3", "begin -1", "restore x", "begin 0begin 1", "\x00\x00\x00"} {
		write(t, j.Path(), append(slices.Clip(good), line+"\nend\n"...))
		got := only(t, s)
		if !strings.Contains(got.Damage(), "progress line 5") {
			t.Errorf("%q: damage %q", line, got.Damage())
		}
		if keys := keysOf(got.Records()); !slices.Equal(keys, []string{"class/eth1/1:1", "class/eth1/1:3"}) ||
			!got.Ended() {
			t.Errorf("%q: owned %v, ended %v", line, keys, got.Ended())
		}
		record(t, got, "restore class/eth1/1:1", "restored class/eth1/1:1")
		if again := only(t, s); len(again.Records()) != 1 || !again.RolledBack() {
			t.Errorf("%q: recorded after it: owned %v", line, keysOf(again.Records()))
		}
	}
}

// TestSalvage damages each line of a journal in turn. Salvage must find the objects of all other
// lines.
func TestSalvage(t *testing.T) {
	for _, how := range []string{"garbage", "cut", "a bit"} {
		dir := filepath.Join(t.TempDir(), "s")
		s := open(t, dir, here)
		var plan []device.Object
		for _, port := range []string{"1", "2", "3"} {
			m, err := device.ParseMatch("tcp4,port=" + port)
			must.Do(t, err)
			plan = append(plan, device.FilterEntry{Filter: "filter/eth1/egress/1/1", Match: m, Priority: "1:10"})
		}
		p := steps(step(nil, class("1:10", 8)), step(nil, plan[0]), step(nil, plan[1]), step(nil, plan[2]),
			step(file("/a", "1"), file("/a", "2")))
		j := begin(t, s, head(p))
		record(t, j, "begin 0", "begin 1", "begin 2", "begin 3", "begin 4", "done 4", "end")
		all := keysOf(j.Records())
		b := read(t, j.Path())
		lines := strings.SplitAfter(string(b), "\n")
		for i := range 7 { // after these lines comes the progress
			t.Run(fmt.Sprintf("%s line %d", how, i), func(t *testing.T) {
				bad := slices.Clone(lines)
				switch how {
				case "garbage":
					bad[i] = "?" + bad[i][1:]
				case "cut":
					bad[i] = bad[i][:len(bad[i])/2] + "\n"
				case "a bit":
					if bad[i] = strings.Replace(bad[i], `"rate":8`, `"rate":9`, 1); bad[i] == lines[i] {
						return
					}
				}
				write(t, j.Path(), []byte(strings.Join(bad, "")))
				if _, err := s.List(); err == nil || !strings.Contains(err.Error(), "rollback --force") {
					t.Errorf("list: %v", err)
				}
				js, err := s.Salvage()
				if err != nil || len(js) != 1 || js[0].Damage() == "" {
					t.Fatalf("%d journals, %v", len(js), err)
				}
				got, want := keysOf(js[0].Records()), slices.Clone(all)
				switch {
				case how == "a bit" || i < 2:
				default:
					want = slices.Delete(want, i-2, i-1)
				}
				if !slices.Equal(got, want) {
					t.Errorf("owned\n%q, want\n%q", got, want)
				}
				if h := js[0].Head(); h.Config != "/etc/niclane/lanes.yaml" || !h.SameNetns(here) ||
					!slices.Contains(h.Devices, "eth1") {
					t.Errorf("head: %+v", h)
				}
				must.Do(t, js[0].Remove())
				if lost := len(all) - len(want); lost > 0 &&
					!strings.Contains(js[0].Damage(), fmt.Sprintf("%d of its lines cannot", lost)) {
					t.Errorf("damage %q, want %d lines", js[0].Damage(), lost)
				}
				_, kept := os.Stat(j.Path() + ".damaged")
				if lost := len(want) < len(all); lost != (kept == nil) {
					t.Errorf("lost %v, file kept: %v", lost, kept)
				}
				if _, err := s.List(); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		}
	}
}

// TestSalvageRefuses: Salvage does not touch a journal that may belong to another namespace or
// version.
func TestSalvageRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	j := begin(t, open(t, dir, here), head(steps(step(nil, class("1:10", 8)))))
	good := read(t, j.Path())
	elsewhere := here
	elsewhere.NetnsCookie++
	broken := strings.Replace(string(good), `"bootID"`, `"boot`, 1)
	for name, tt := range map[string]struct {
		host       journal.Host
		text, want string
	}{
		"another namespace": {elsewhere, broken, "network namespace"},
		"another version": {here, strings.Replace(string(good), "niclane-journal 2", "niclane-journal 3", 1),
			"version 3"},
		"no config": {here, strings.Replace(broken, "lanes.yaml", "lunes.yaml", 1), "network namespace"},
	} {
		write(t, j.Path(), []byte(tt.text))
		js, err := open(t, dir, tt.host).Salvage()
		if len(js) > 0 || err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), j.Path()) {
			t.Errorf("%s: %d journals, %v, want %q", name, len(js), err, tt.want)
		}
	}
}

// TestTidy checks that Tidy removes files that record nothing, and no others.
func TestTidy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := open(t, dir, here)
	j := begin(t, s, head(steps(step(nil, class("1:10", 8)))))
	record(t, j, "begin 0", "done 0", "end")
	idle := head(steps(step(nil, class("1:11", 8))))
	idle.Config, idle.Plan.Devices = "/etc/niclane/idle.yaml", []string{"eth9"}
	begin(t, s, idle)
	name := filepath.Base(j.Path())
	for _, f := range []string{name + ".new", "empty-00.0e5b.journal", "x-00.11.journal.damaged", name + ".damaged",
		"notes.txt"} {
		write(t, filepath.Join(dir, f), nil)
	}
	notes, err := s.Tidy()
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "empty-00.0e5b.journal") {
		t.Errorf("notes %q, %v", notes, err)
	}
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{name, name + ".damaged", "notes.txt"}; !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// TestTidyReplaced checks that Tidy keeps a replaced journal as long as the present journal can
// revert to it.
func TestTidyReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := open(t, dir, here)
	var path string
	for _, id := range []string{"1:10", "1:11", "1:12"} {
		h := head(steps(step(nil, class(id, 8))))
		h.Undoable = true
		j := begin(t, s, h)
		record(t, j, "begin 0", "done 0", "end")
		path = j.Path()
	}
	tidied := func(what string, kept bool) {
		t.Helper()
		if notes, err := s.Tidy(); len(notes) > 0 || err != nil {
			t.Errorf("%s: notes %q, %v", what, notes, err)
		}
		if _, err := os.Stat(path + ".replaced"); (err == nil) != kept {
			t.Errorf("%s: %v, want it kept: %v", what, err, kept)
		}
	}
	tidied("the second", true)
	text := read(t, path+".replaced")
	third := read(t, path)
	for what, b := range map[string][]byte{"the third": third,
		"a damaged one": bytes.Replace(text, []byte("1:11"), []byte("1:13"), 1)} {
		write(t, path+".replaced", b)
		tidied(what, false)
	}
}

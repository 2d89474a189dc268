// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/journal"
)

// TestMemory: a process does not decode a journal again that it has written or read, unless
// another process has changed the file.
func TestMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	var m journal.Memory
	again := func() *journal.Store {
		s := open(t, dir, here)
		s.Use(&m)
		return s
	}
	p := steps(step(file("/a", "1"), file("/a", "2")), step(nil, class("1:10", 8)))
	s := again()
	j := begin(t, s, head(p))
	record(t, j, "begin 0", "begin 1", "done 1", "end")
	s.Keep(j)
	alike := func(what string) *journal.Journal {
		t.Helper()
		got, want := only(t, again()), only(t, open(t, dir, here))
		same(t, what+" (-read +remembered)", want.Records(), got.Records())
		if got.Ended() != want.Ended() || got.Head().Generation != want.Head().Generation ||
			!got.Head().When.Equal(want.Head().When) {
			t.Errorf("%s: read %+v, remembered %+v", what, want.Head(), got.Head())
		}
		return got
	}

	// Show that the file is not read: a change with the same size and time has no effect.
	st, err := os.Stat(j.Path())
	must.Do(t, err)
	good := read(t, j.Path())
	replace := func(b []byte) {
		t.Helper()
		write(t, j.Path(), b)
		must.Do(t, os.Chtimes(j.Path(), st.ModTime(), st.ModTime()))
	}
	replace([]byte(strings.Replace(string(good), "version: 1", "version: 2", 1)))
	only(t, again()) // the file is damaged, but only a process that reads it notices
	if _, err := open(t, dir, here).List(); err == nil {
		t.Error("a damaged head is read without an error")
	}
	replace(good)
	alike("kept")

	// The same, but with another file of the same size and time.
	record(t, j, "undo 0", "undone 0")
	s.Keep(j)
	good = read(t, j.Path())
	if st, err = os.Stat(j.Path()); err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.Rename(j.Path(), filepath.Join(t.TempDir(), "was")))
	replace([]byte(strings.NewReplacer("undo 0", "undo 1", "undone 0", "undone 1").Replace(string(good))))
	alike("another file of its name")

	// The next store must see the events that the previous one has recorded.
	record(t, only(t, again()), "undo 0")
	if got := alike("recorded by one that was remembered").Records(); len(got) != 1 || !got[0].Uncertain {
		t.Errorf("%+v, want one that is uncertain", got)
	}
	// Another process records into the file.
	record(t, only(t, open(t, dir, here)), "undone 0")
	if got := alike("recorded by somebody else").Records(); len(got) != 0 {
		t.Errorf("%d records, want none", len(got))
	}
	// Another process begins a new generation.
	other := begin(t, open(t, dir, here), head(steps(step(file("/b", "1"), file("/b", "2")))))
	record(t, other, "begin 0", "done 0", "end")
	alike("begun by somebody else")
	s = again()
	j = begin(t, s, head(steps(step(file("/b", "2"), file("/b", "3")))))
	if j.Head().Generation != other.Head().Generation+1 || len(j.Head().Before) != 1 {
		t.Errorf("generation %d with %d records, want %d with 1", j.Head().Generation, len(j.Head().Before),
			other.Head().Generation+1)
	}
	record(t, j, "begin 0")
	s.Keep(j)
	record(t, j, "done 0")
	alike("recorded after it was kept")
	record(t, only(t, open(t, dir, here)), "undo 0")
	s.Keep(j) // j does not have the last event
	alike("kept by who does not know all")
	must.Do(t, other.Remove())
	if js, err := again().List(); err != nil || len(js) != 0 {
		t.Errorf("%d journals, %v; it was removed", len(js), err)
	}
}

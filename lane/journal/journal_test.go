// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// same compares two values, without the cached fields of records.
func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(journal.Record{})); diff != "" {
		t.Errorf("%s:\n%s", what, diff)
	}
}

var here = journal.Host{BootID: "0e5b", NetnsCookie: 7, NetnsInode: 4026531840}

func file(path, value string) device.Object {
	return device.File{Path: path, Format: device.FileText, Value: value}
}

func class(id string, rate uint64) device.Object {
	return device.Class{Dev: "eth1", ID: id, Parent: "1:", Rate: rate, Ceil: rate, Burst: 1, CBurst: 1, Quantum: 1}
}

func steps(s ...plan.Step) *plan.Plan { return &plan.Plan{Devices: []string{"eth1"}, Steps: s} }

func step(old, next device.Object) plan.Step {
	return plan.Step{Old: old, New: next, Part: device.PartBandwidth, Reason: "r", Cause: "lanes.a"}
}

func head(p *plan.Plan) journal.Head {
	return journal.Head{
		Host: here, Config: "/etc/niclane/lanes.yaml", ConfigText: "version: 1\n",
		Who:  journal.Who{UID: 0, PID: 12, Command: []string{"niclane", "apply"}},
		When: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Devices: p.Devices, Plan: p,
	}
}

func open(t *testing.T, dir string, host journal.Host) *journal.Store {
	t.Helper()
	s, err := journal.Open(dir, host)
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func begin(t *testing.T, s *journal.Store, h journal.Head) *journal.Journal {
	t.Helper()
	j, err := s.Begin(h)
	must.Do(t, err)
	return j
}

// only returns the only journal of the store, decoded again from its file.
func only(t *testing.T, s *journal.Store) *journal.Journal {
	t.Helper()
	js, err := s.List()
	must.Do(t, err)
	if len(js) != 1 {
		t.Fatalf("%d journals, want 1", len(js))
	}
	return js[0]
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must.Do(t, err)
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path, b, 0o600))
}

func encode(t testing.TB, j *journal.Journal) []byte {
	t.Helper()
	b, err := j.Encode()
	must.Do(t, err)
	return b
}

func decode(t *testing.T, b []byte) *journal.Journal {
	t.Helper()
	j, err := journal.Decode(b)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	return j
}

// record records the given calls in turn, such as "begin 0" or "restored KEY".
func record(t *testing.T, j *journal.Journal, calls ...string) {
	t.Helper()
	for _, c := range calls {
		verb, arg, _ := strings.Cut(c, " ")
		n := 0
		if arg != "" && arg[0] >= '0' && arg[0] <= '9' {
			n = int(arg[0] - '0')
		}
		var err error
		switch verb {
		case "begin":
			err = j.Begin(n)
		case "done":
			err = j.Done(n)
		case "undo":
			err = j.Undo(n)
		case "undone":
			err = j.Undone(n)
		case "restore":
			err = j.Restore(arg)
		case "restored":
			err = j.Restored(arg)
		case "end":
			err = j.End()
		default:
			t.Fatalf("call %q", c)
		}
		must.Do(t, err)
	}
}

func TestRecords(t *testing.T) {
	a, b, c := file("/a", "1"), file("/a", "2"), file("/a", "3")
	p := steps(step(a, b), step(nil, class("1:10", 8)), step(b, c), step(class("1:20", 8), nil),
		step(file("/a", "theirs"), c))
	rec := func(original, last device.Object, uncertain bool) journal.Record {
		return journal.Record{Record: plan.Record{Original: original, Last: last, Part: device.PartBandwidth,
			Cause: "lanes.a"}, Uncertain: uncertain}
	}
	next := func(r journal.Record, next device.Object) journal.Record { r.Next = next; return r }
	ten, twenty := class("1:10", 8), class("1:20", 8)
	for name, tt := range map[string]struct {
		calls []string
		want  []journal.Record
	}{
		"nothing": {nil, nil},
		"begun":   {[]string{"begin 0"}, []journal.Record{rec(a, b, true)}},
		"done":    {[]string{"begin 0", "done 0"}, []journal.Record{rec(a, b, false)}},
		"begun, then another": {[]string{"begin 0", "begin 1"},
			[]journal.Record{rec(a, b, false), rec(nil, ten, true)}},
		"two read back at once": {[]string{"begin 0", "begin 1", "done 1"},
			[]journal.Record{rec(a, b, false), rec(nil, ten, false)}},
		"read back as another": {[]string{"begin 0", "begin 1", "undo 0", "undo 1"},
			[]journal.Record{rec(a, b, true), rec(nil, ten, true)}},
		"two": {[]string{"begin 0", "done 0", "begin 1"},
			[]journal.Record{rec(a, b, false), rec(nil, ten, true)}},
		"same object twice": {[]string{"begin 0", "done 0", "begin 1", "done 1", "begin 2", "done 2"},
			[]journal.Record{rec(a, c, false), rec(nil, ten, false)}},
		"removed":    {[]string{"begin 3", "done 3"}, []journal.Record{rec(twenty, nil, false)}},
		"undo begun": {[]string{"begin 0", "done 0", "undo 0"}, []journal.Record{rec(a, b, true)}},
		"undone":     {[]string{"begin 0", "done 0", "undo 0", "undone 0"}, nil},
		"undone in part": {[]string{"begin 0", "done 0", "begin 1", "undo 1", "undone 1"},
			[]journal.Record{rec(a, b, false)}},
		"restore begun": {[]string{"begin 1", "done 1", "restore class/eth1/1:10"},
			[]journal.Record{rec(nil, ten, true)}},
		"restored": {[]string{"begin 1", "done 1", "restore class/eth1/1:10", "restored class/eth1/1:10"},
			nil},
		"restored, and not so": {[]string{"begin 1", "done 1", "restore class/eth1/1:10", "restored class/eth1/1:10",
			"restore class/eth1/1:10"}, []journal.Record{rec(nil, ten, true)}},
		"undone, and not so": {[]string{"begin 1", "done 1", "undo 1", "undone 1", "undo 1"},
			[]journal.Record{rec(nil, ten, true)}},
		"second write begun": {[]string{"begin 0", "done 0", "begin 2"}, []journal.Record{next(rec(a, b, true), c)}},
		"its undo begun": {[]string{"begin 0", "done 0", "begin 2", "done 2", "undo 2"},
			[]journal.Record{next(rec(a, c, true), b)}},
		"given back twice": {[]string{"begin 0", "done 0", "begin 4", "undo 4", "undone 4", "undo 4", "undone 4"},
			[]journal.Record{rec(a, b, false)}},
		"found as somebody else's, and given back": {[]string{"begin 0", "done 0", "begin 4", "undo 4", "undone 4"},
			[]journal.Record{rec(a, b, false)}},
		"second write undone": {[]string{"begin 0", "done 0", "begin 2", "done 2", "undo 2",
			"undone 2"}, []journal.Record{rec(a, b, false)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "s"), here)
			j := begin(t, s, head(p))
			record(t, j, tt.calls...)
			same(t, "records (-want +got)", tt.want, j.Records())
			same(t, "records read back (-want +got)", tt.want, only(t, s).Records())
		})
	}
}

func TestGenerations(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s"), here)
	a, b, c := file("/a", "1"), file("/a", "2"), file("/a", "3")
	j := begin(t, s, head(steps(step(a, b), step(nil, class("1:10", 8)))))
	record(t, j, "begin 0", "done 0", "begin 1", "done 1", "end")

	// Generation 2: the plan removes the class, changes the file again, and adds another class and
	// another device.
	p := steps(step(class("1:10", 8), nil), step(b, c), step(nil, class("1:20", 8)))
	p.Devices = []string{"eth0", "eth1"}
	j = begin(t, s, head(p))
	if got := j.Head(); got.Generation != 2 || !cmp.Equal(got.Devices, []string{"eth0", "eth1"}) {
		t.Errorf("generation %d, devices %v", got.Generation, got.Devices)
	}
	if got := j.Records(); len(got) != 2 {
		t.Errorf("records at the beginning: %+v, want both of generation 1", got)
	}
	record(t, j, "begin 0", "done 0", "begin 1", "done 1", "begin 2", "done 2", "end")
	want := []journal.Record{
		{Record: plan.Record{Original: a, Last: c, Part: device.PartBandwidth, Cause: "lanes.a"}},
		{Record: plan.Record{Last: class("1:20", 8), Part: device.PartBandwidth, Cause: "lanes.a"}},
	}
	same(t, "records of both generations (-want +got)", want, only(t, s).Records())
	owned, err := s.Owned([]string{"eth1"})
	must.Do(t, err)
	if len(owned.Records) != 2 || !device.Equal(owned.Records[0].Original, a) {
		t.Errorf("owned: %+v", owned)
	}
	if owned, err := s.Owned([]string{"eth9"}); err != nil || len(owned.Records) != 0 {
		t.Errorf("owned on another device: %+v, %v", owned, err)
	}

	// Undo the removal of generation 1's class: generation 1 owns the class again.
	record(t, j, "undo 2", "undone 2", "undo 1", "undone 1", "undo 0")
	if got := j.Records(); len(got) != 2 || got[1].Key() != "class/eth1/1:10" && got[0].Key() != "class/eth1/1:10" {
		t.Errorf("records while undoing a removal: %+v", got)
	}
	record(t, j, "undone 0")
	same(t, "records after undoing generation 2 (-before +after)", j.Head().Before, only(t, s).Records())
}

// TestKilledWhileWriting cuts the file at every length after the head. The lines that are
// complete must count, and recording must continue after them.
func TestKilledWhileWriting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := open(t, dir, here)
	p := steps(step(file("/a", "1"), file("/a", "2")), step(nil, class("1:10", 8)))
	j := begin(t, s, head(p))
	path := j.Path()
	whole := read(t, path)
	headLen := len(whole)
	record(t, j, "begin 0", "done 0", "begin 1")
	whole = read(t, path)
	for n := headLen; n <= len(whole); n++ {
		write(t, path, whole[:n])
		lines := strings.Count(string(whole[headLen:n]), "\n")
		got := only(t, s)
		if want := min(lines, 1) + lines/3; len(got.Records()) != want {
			t.Errorf("cut at %d, %d lines: %d records, want %d", n, lines, len(got.Records()), want)
		}
		must.Do(t, got.Begin(1))
		if again := only(t, s).Records(); len(again) == 0 || again[len(again)-1].Key() != "class/eth1/1:10" {
			t.Errorf("cut at %d: after another line: %+v", n, again)
		}
	}
	for n := 1; n < headLen; n++ {
		write(t, path, whole[:n])
		if _, err := s.List(); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("head cut at %d: %v, want an error that names %s", n, err, path)
		}
	}
}

func TestDamage(t *testing.T) {
	j := journal.New(head(steps(step(file("/a", "1"), file("/a", "2")))))
	record(t, j, "begin 0")
	good := encode(t, j)
	for name, tt := range map[string]struct {
		change func(string) string
		want   string
	}{
		"another file": {func(s string) string { return "hello\n" + s }, "not a journal"},
		"empty":        {func(string) string { return "" }, "cut short"},
		"later version": {func(s string) string {
			return strings.Replace(s, "niclane-journal 2",
				"niclane-journal 3", 1)
		}, "version 3"},
		"one bit of a value": {func(s string) string { return strings.Replace(s, `"value":"1"`, `"value":"0"`, 1) },
			"SHA-256"},
		"like nothing": {func(s string) string {
			return resum(strings.Replace(s, "\nstep ", "\nlike tcp4\nstep ",
				1))
		}, "not known"},
		"like a file": {func(s string) string {
			return resum(strings.Replace(s, "\nbegin", "\nlike tcp4\nbegin",
				1))
		}, "no packets"},
		"a line of neither": {func(s string) string { return resum(strings.Replace(s, "\nstep ", "\nstop ", 1)) },
			"line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := journal.Decode([]byte(tt.change(string(good))))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if j, err := journal.Decode(good); err != nil || j.Damage() != "" {
		t.Errorf("undamaged: %v, damage %q", err, j.Damage())
	}
}

func TestHosts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	p := steps(step(file("/a", "1"), file("/a", "2")))
	j := begin(t, open(t, dir, here), head(p))
	record(t, j, "begin 0", "done 0", "end")

	other := here
	other.NetnsCookie = 8
	s := open(t, dir, other)
	if js, err := s.Here(); err != nil || len(js) != 0 {
		t.Errorf("another namespace sees %d journals, %v", len(js), err)
	}
	// In another namespace, the same name is another device.
	elsewhere := head(p)
	elsewhere.Config = "/etc/niclane/other.yaml"
	if err := s.Conflict(elsewhere.Config, p.Devices, nil); err != nil {
		t.Errorf("conflict across namespaces: %v", err)
	}

	rebooted := here
	rebooted.BootID = "f00d"
	s = open(t, dir, rebooted)
	if got := only(t, s).Head(); got.SameBoot(rebooted) || got.Config != j.Head().Config {
		t.Errorf("after a reboot: %s of boot %s", got.Config, got.BootID)
	}
	if j := begin(t, s, head(p)); j.Head().Generation != 1 || len(j.Records()) != 0 {
		t.Errorf("after a reboot: generation %d, %d records", j.Head().Generation, len(j.Records()))
	}
	if got := only(t, s).Head(); !got.SameBoot(rebooted) {
		t.Errorf("after a reboot and an apply: boot %s", got.BootID)
	}

	old := here
	old.NetnsCookie = 0 // a kernel before 5.14 has no cookie
	if !old.SameNetns(here) {
		t.Error("without a cookie the inode decides")
	}
	old.NetnsInode++
	if old.SameNetns(here) {
		t.Error("another inode is another namespace")
	}
}

// TestCrash: a crash can damage an unsynced file. In the next boot, such a file is ignored. In
// the same boot it is an error, because a crash cannot be the cause.
func TestCrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	p := steps(step(file("/a", "1"), file("/a", "2")))
	j := begin(t, open(t, dir, here), head(p))
	record(t, j, "begin 0", "done 0", "end")
	whole := read(t, j.Path())
	next := here
	next.BootID = "11111111-2222-4333-8444-555555555555"
	for name, left := range map[string][]byte{
		"nothing": {}, "zeros": make([]byte, len(whole)), "a part": whole[:len(whole)/2],
	} {
		t.Run(name, func(t *testing.T) {
			write(t, j.Path(), left)
			js, err := open(t, dir, here).List()
			if len(js) > 0 || len(left) > 0 && (err == nil || !strings.Contains(err.Error(), j.Path())) {
				t.Errorf("in the same boot: %d journals, %v, want an error that names the file", len(js), err)
			}
			s := open(t, dir, next)
			if js, err := s.List(); len(js) != 0 || err != nil {
				t.Errorf("after a reboot: %d journals, %v", len(js), err)
			}
			again := begin(t, s, head(p))
			defer again.Remove()
			if again.Head().Generation != 1 || again.Path() == j.Path() {
				t.Errorf("generation %d in %s", again.Head().Generation, again.Path())
			}
			if _, err := os.Stat(j.Path()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file of the earlier boot: %v", err)
			}
			only(t, s)
		})
	}
}

func TestTwoConfigsForOneDevice(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s"), here)
	p := steps(step(file("/a", "1"), file("/a", "2")))
	j := begin(t, s, head(p))
	record(t, j, "begin 0", "done 0", "end")
	second := head(p)
	second.Config = "/etc/niclane/second.yaml"
	_, err := s.Begin(second)
	if err == nil {
		t.Fatal("two configs for one device")
	}
	for _, want := range []string{"eth1", "/etc/niclane/lanes.yaml", "/etc/niclane/second.yaml"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if only(t, s).Head().Config != "/etc/niclane/lanes.yaml" {
		t.Error("the first journal is not there any more")
	}
}

func TestDirectory(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"others can read it": func(dir string) error { return os.Mkdir(dir, 0o755) },
		"a symbolic link": func(dir string) error {
			if err := os.Mkdir(dir+"2", 0o700); err != nil {
				return err
			}
			return os.Symlink(dir+"2", dir)
		},
		"a file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			must.Do(t, spoil(dir))
			if _, err := journal.Open(dir, here); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want one that names %s", err, dir)
			}
		})
	}
	dir := filepath.Join(t.TempDir(), "s")
	if _, err := journal.OpenExisting(dir, here); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v, want ErrNotExist", err)
	}
	s := open(t, dir, here)
	j := begin(t, s, head(steps(step(file("/a", "1"), file("/a", "2")))))
	for path, want := range map[string]fs.FileMode{dir: 0o700, j.Path(): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	// The store must not follow a symbolic link in place of a journal.
	secret := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.Rename(j.Path(), secret))
	must.Do(t, os.Symlink(secret, j.Path()))
	if _, err := s.List(); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestHere(t *testing.T) {
	h, err := journal.Here()
	must.Do(t, err)
	again, err := journal.Here()
	if err != nil || !h.SameNetns(again) || h.BootID == "" || h.NetnsInode == 0 {
		t.Errorf("%+v, then %+v, %v", h, again, err)
	}
}

func FuzzDecode(f *testing.F) {
	many := steps(step(file("/a", "1"), file("/a", "2")), step(nil, class("1:10", 8)), step(class("1:20", 8), nil))
	many.Steps = append(many.Steps, members(3)...)
	h := head(many)
	h.Before = []journal.Record{{Record: plan.Record{Last: entry(1, 1), Cause: "a"}},
		{Record: plan.Record{Last: entry(2, 1), Cause: "b"}}}
	j := journal.New(h)
	for _, call := range []func() error{
		func() error { return j.Begin(0) }, func() error { return j.Done(0) }, func() error { return j.Begin(2) },
		func() error { return j.Restore("file/a") }, j.End,
	} {
		must.Do(f, call())
		b := encode(f, j)
		// Compute the SHA-256 here: the fuzzer would never guess it, and would not get past the first
		// line.
		_, rest, _ := strings.Cut(string(b), "\n")
		at := strings.Index(rest, "\nbegin ") + 1
		f.Add(rest[:at], rest[at:])
	}
	f.Fuzz(func(t *testing.T, head, progress string) {
		sum := sha256.Sum256([]byte(head))
		j, err := journal.Decode(fmt.Appendf(nil, "niclane-journal 2 %d %x\n%s%s", len(head), sum, head, progress))
		if err != nil {
			return
		}
		records := j.Records()
		for _, r := range records {
			if r.Key() == "" {
				t.Errorf("record without a key: %+v", r)
			}
		}
		if n := len(j.Steps()); n != len(j.Head().Plan.Steps) {
			t.Errorf("%d step states for %d steps", n, len(j.Head().Plan.Steps))
		}
		back := decode(t, encode(t, j))
		same(t, "records differ (-first +second)", records, back.Records())
		same(t, "plans differ (-first +second)", j.Head().Plan, back.Head().Plan)
	})
}

// TestGround: the identities of devices and control groups are recorded in all generations, even
// those of a device that has left the file. They show that a device has another name now.
func TestGround(t *testing.T) {
	link := func(name string, index int) device.Link { return device.Link{Name: name, Index: index, Type: "veth"} }
	s := open(t, filepath.Join(t.TempDir(), "s"), here)
	p := steps(step(nil, class("1:10", 8)))
	p.Devices = []string{"eth1", "eth2"}
	p.Ground = plan.Ground{Links: []device.Link{link("eth1", 5), link("eth2", 6)},
		Groups: map[string]uint64{"/g/a": 1, "/g/b": 2}}
	record(t, begin(t, s, head(p)), "begin 0", "done 0", "end")
	same(t, "(-want +got)", p.Ground, only(t, s).Head().Ground)
	next := steps(step(nil, class("1:11", 8)))
	next.Ground = plan.Ground{Links: []device.Link{link("eth1", 7)}, Groups: map[string]uint64{"/g/b": 3}}
	begin(t, s, head(next))
	want := plan.Ground{Links: []device.Link{link("eth1", 7), link("eth2", 6)},
		Groups: map[string]uint64{"/g/a": 1, "/g/b": 3}}
	same(t, "next generation (-want +got)", want, only(t, s).Head().Ground)
	begin(t, s, head(steps(step(nil, class("1:12", 8)))))
	same(t, "a plan that says none (-want +got)", want, only(t, s).Head().Ground)
	for name, want := range map[string]string{"eth9": "eth9: this is the device that /etc/niclane/lanes.yaml was " +
		"applied to as eth2", "eth2": "applied from"} {
		err := s.Conflict("/etc/niclane/other.yaml", []string{name}, []device.Link{link(name, 6)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := s.Conflict("/etc/niclane/other.yaml", []string{"eth9"}, []device.Link{link("eth9", 9)}); err != nil {
		t.Errorf("another device: %v", err)
	}
}

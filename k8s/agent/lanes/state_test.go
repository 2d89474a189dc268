// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// TestFiles checks that an attachment is stored with all fields, and that each file is written only
// if its content has changed.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	d := newDisk(filepath.Join(dir, "state.json"), dir, "b")
	s, _, err := d.load()
	if err != nil {
		t.Fatal(err)
	}
	inode := func(path string) (ino uint64) {
		if info, err := os.Stat(path); err == nil {
			ino = info.Sys().(*syscall.Stat_t).Ino
		}
		return ino
	}
	check := func(lasting, boot bool) {
		t.Helper()
		was := [2]uint64{inode(d.lasting.path), inode(d.boot.path)}
		if err := d.save(s); err != nil {
			t.Fatal(err)
		}
		if now := [2]uint64{inode(d.lasting.path), inode(d.boot.path)}; (now[0] != was[0]) != lasting ||
			(now[1] != was[1]) != boot {
			t.Errorf("inodes %d, before %d: want the first written %v, the second %v", now, was, lasting, boot)
		}
		b, err := os.ReadFile(d.boot.path)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Attachments map[string]Attachment }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		want := map[string]Attachment{}
		for _, a := range s.Attachments {
			want[a.Sandbox+" "+a.IfName] = *a
		}
		if !reflect.DeepEqual(got.Attachments, want) {
			t.Errorf("written\n%s\nwant\n%+v", b, want)
		}
		now := [2]uint64{inode(d.lasting.path), inode(d.boot.path)}
		other := newDisk(d.lasting.path, dir, "b")
		again, _, err := other.load()
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("read, %v:\n%+v\nwant\n%+v", err, again, s)
		}
		if err := other.save(again); err != nil || now != [2]uint64{inode(d.lasting.path), inode(d.boot.path)} {
			t.Errorf("what was read is written anew; %v", err)
		}
		if files, err := os.ReadDir(filepath.Dir(d.boot.path)); err != nil || len(files) != 2 {
			t.Errorf("files: %v, %v", files, err)
		}
	}
	check(true, true)
	check(false, false)
	s.put(attachment("a", "10.0.0.1", "web", "web-0"))
	check(false, true)
	s = s.clone()
	s.put(attachment(`b"<`, "10.0.0.2", "web", "web-1"))
	s.Holds["k"] = inventory.Hold{Key: "k"}
	check(true, true)
	s = s.clone()
	s.Policy, s.Generation, s.Spec = "p", 2, &redisAndWeb(1).Spec
	check(true, false)
	s.put(attachment("a", "10.0.0.3", "web", "web-2")) // again
	check(false, true)
	was := s
	s = s.clone()
	s.remove(func(a *Attachment) bool { return a.Sandbox == "sb-a" })
	check(false, true)
	if len(s.Attachments) != 1 || len(was.Attachments) != 2 {
		t.Errorf("%d attachments, want 1; %d before, want 2", len(s.Attachments), len(was.Attachments))
	}
	if err := os.WriteFile(d.boot.path, []byte(`{"schema": 3, "attachments": {"x": null}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, _, err = d.load(); err != nil || len(s.Attachments) != 0 {
		t.Fatalf("read: %+v, %v", s, err)
	}
	check(false, true)
}

// TestRebootFiles checks that the policy and the holds survive a reboot. The file with the pods of
// an earlier boot is removed, even if it is damaged.
func TestRebootFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	d := newDisk(path, dir, "b")
	s, _, err := d.load()
	if err != nil {
		t.Fatal(err)
	}
	s.Policy, s.Spec = "p", &redisAndWeb(1).Spec
	s.Holds["k"] = inventory.Hold{Key: "k"}
	s.put(attachment("a", "10.0.0.1", "web", "web-0"))
	if err := d.save(s); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.boot.path, 20); err != nil {
		t.Fatal(err)
	}
	same, unread, err := newDisk(path, dir, "b").load()
	if err != nil || len(unread) != 1 || !strings.HasPrefix(unread[0], d.boot.path+": damaged: ") ||
		len(same.Attachments) > 0 || same.Policy != "p" || len(same.Holds) != 1 {
		t.Errorf("in the same boot: %+v, %q, %v", same, unread, err)
	}
	again, unread, err := newDisk(path, dir, "c").load()
	if err != nil || len(unread) > 0 || again.Policy != "p" || again.Spec == nil || len(again.Holds) != 1 || len(again.Attachments) != 0 {
		t.Errorf("after a reboot: %+v, %v", again, err)
	}
	if _, err := os.Stat(d.boot.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pods of the boot before: %v", err)
	}
}

// TestOtherRelease checks an upgrade and a downgrade: files of an older and of a newer schema, and
// damaged ones, are not read, and the next write replaces them.
func TestOtherRelease(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema": 2, "policy": ["p"]}`:              "schema 2 of another release, this one has 3",
		`{"schema": 4, "holds": [], "attachments":3}`: "schema 4 of another release, this one has 3",
		`{}`: "schema 0 of another release", `{`: "damaged: unexpected end", "": "damaged: unexpected end",
		`{"schema": 3, "policy": 3, "attachments": 3}`: "damaged: json: cannot unmarshal number",
	} {
		dir := t.TempDir()
		d := newDisk(filepath.Join(dir, "state.json"), dir, "b")
		for _, path := range []string{d.lasting.path, d.boot.path} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, unread, err := d.load()
		if err != nil || len(unread) != 2 || !reflect.DeepEqual(s, (&state{}).clone()) {
			t.Fatalf("%s: %+v, %q, %v", text, s, unread, err)
		}
		for i, path := range []string{d.lasting.path, d.boot.path} {
			if !strings.HasPrefix(unread[i], path+": "+want) {
				t.Errorf("%s: %q, want %q of %s", text, unread[i], want, path)
			}
		}
		s.Policy = "p"
		if err := d.save(s); err != nil {
			t.Fatal(err)
		}
		if s, unread, err := newDisk(d.lasting.path, dir, "b").load(); err != nil || len(unread) > 0 || s.Policy != "p" {
			t.Errorf("%s: written again: %+v, %q, %v", text, s, unread, err)
		}
	}
}

// TestRebuilt checks that lanes which an agent of another release has made stay on the card until
// the policy is known, and are the policy's then.
func TestRebuilt(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"schema": 9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &fakeCard{text: "made by another release"}
	n := start(t, c, dir, "b")
	if err := n.Alive(t.Context()); err != nil { // the loop has started, so it has restored
		t.Fatal(err)
	}
	if unread := n.Unread(); c.now() != "made by another release" || len(unread) != 1 ||
		!strings.Contains(unread[0], "schema 9") {
		t.Errorf("the card has %q; not read: %q", c.now(), unread)
	}
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if text := c.now(); !strings.Contains(text, "redis-0") || !n.Status().Applied {
		t.Errorf("the card has %q: %+v", text, n.Status())
	}
	if b, err := os.ReadFile(filepath.Join(dir, "state.json")); err != nil || !strings.Contains(string(b), `"schema":3`) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestSet checks that Now returns a snapshot of the new state as soon as set has returned.
func TestSet(t *testing.T) {
	dir := t.TempDir()
	n, err := New(Options{Name: "n1", Path: filepath.Join(dir, "state.json"), RunDir: dir, Boot: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if now := n.Now(); len(now.Classes) != 0 {
		t.Fatalf("%+v", now)
	}
	next := n.st.clone()
	next.Spec = &redisAndWeb(1).Spec
	n.set(next)
	if now := n.Now(); len(now.Classes) != 4 || now.Version == 0 {
		t.Errorf("%+v", now)
	}
}

// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/niclane/niclane/k8s/classes"
)

// TestStateFile: an attachment's text, which is kept, is in the file what the
// attachment is.
func TestStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s, err := load(path, "b")
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := s.save(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got, plain any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if err := json.Unmarshal(want, &plain); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, plain) {
			t.Errorf("written\n%s\nwant\n%s", b, want)
		}
	}
	check()
	s.put(attachment("a", "10.0.0.1", "web", "web-0"))
	check()
	s = s.clone()
	s.put(attachment(`b"<`, "10.0.0.2", "web", "web-1"))
	s.Holds["k"] = classes.Hold{Key: "k"}
	check()
	s.put(attachment("a", "10.0.0.3", "web", "web-2")) // anew
	check()
	was := s
	s = s.clone()
	for key := range s.Attachments {
		if strings.HasPrefix(key, "sb-a ") {
			delete(s.Attachments, key)
		}
	}
	check()
	if len(s.Attachments) != 1 || len(was.Attachments) != 2 {
		t.Errorf("%d attachments, want 1; %d before, want 2", len(s.Attachments), len(was.Attachments))
	}
	kept := func() (text []byte) {
		for _, a := range s.Attachments {
			text = a.text
		}
		return text
	}
	text := kept()
	if s = s.clone(); text == nil || &kept()[0] != &text[0] {
		t.Error("an attachment's text is made again with a state that has it")
	}
	if s, err = load(path, "b"); err != nil || len(s.Attachments) != 1 || !bytes.Equal(kept(), text) {
		t.Fatalf("read: %+v, %v", s, err)
	}
	check()
	if err := os.WriteFile(path, []byte(`{"schema": 1, "boot": "b", "attachments": {"x": null}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = load(path, "b"); err != nil || len(s.Attachments) != 0 {
		t.Fatalf("read: %+v, %v", s, err)
	}
	check()
}

// TestSet: what is known is shown at once, also before it is told of.
func TestSet(t *testing.T) {
	n, err := New(Options{Name: "n1", Path: filepath.Join(t.TempDir(), "state.json"), Boot: "b"})
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

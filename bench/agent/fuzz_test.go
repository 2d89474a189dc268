// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzRequests: an agent parses any request without a panic, and accepts only requests within
// its limits.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		`{"what":"x","part":"load","config":{"a":1}}`,
		`{"what":"x","command":["a","b"],"environment":["A=b"],"cpus":[1,2],"fifoPriority":3,"member":true}`,
		`{"purpose":"x","limitNs":1000000000,"device":"eth0"}`,
		`{"text":"version: 1","confirmWithinNs":30000000000}`,
		`{"device":"eth0","jobs":{"server":1}}`, `{} {}`, `[`, `null`, `{"what":"\u001b[2J"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := decode[Request](bytes.NewReader(text)); err == nil && r.check() == nil {
			size := 0
			for _, a := range append(r.Command, r.Environment...) {
				size += len(a)
			}
			if (r.Part == "") == (len(r.Command) == 0) || size > maxArgument ||
				strings.ContainsAny(r.What, "\n\x1b\x00") || r.FIFO > 99 {
				t.Errorf("taken: %+v", r)
			}
			for _, e := range r.Environment {
				if strings.HasPrefix(e, marker+"=") || strings.HasPrefix(e, "LD_") || !strings.Contains(e, "=") {
					t.Errorf("taken: %q", e)
				}
			}
		}
		if o, err := decode[Opening](bytes.NewReader(text)); err == nil && o.check(time.Hour) == nil &&
			(o.Limit <= 0 || o.Limit > int64(time.Hour)) {
			t.Errorf("taken: %+v", o)
		}
		if l, err := decode[Lanes](bytes.NewReader(text)); err == nil && l.check() == nil && l.ConfirmWithin < 1e9 {
			t.Errorf("taken: %+v", l)
		}
		_, _ = decode[Counting](bytes.NewReader(text))
		_, _ = decode[Asking](bytes.NewReader(text))
		_, _ = decode[Search](bytes.NewReader(text))
	})
}

// FuzzFileNames: nothing is written outside the session's directory.
func FuzzFileNames(f *testing.F) {
	for _, s := range []string{"a", "a/b/c.conf", "../x", "/etc/passwd", "a/../../x", ".", "link/x", "a\x00b", `a\b`,
		"a//b"} {
		f.Add(s)
	}
	dir := f.TempDir()
	s := &session{agent: &Agent{Config: Config{Dir: filepath.Join(dir, "agent")}}}
	if err := os.MkdirAll(s.files(), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(s.files(), "link")); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s.bytes = 0
		if err := s.put(name, false, []byte("x")); err == nil {
			if got, err := os.ReadFile(filepath.Join(s.files(), name)); err != nil || string(got) != "x" {
				t.Errorf("%q: %q, %v", name, got, err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Fatalf("%q: %v, %v", name, left, err)
		}
		if left, err := os.ReadDir(s.agent.Dir); err != nil || len(left) != 1 {
			t.Fatalf("%q: %v, %v", name, left, err)
		}
		entries, err := os.ReadDir(s.files())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "link" {
				if err := os.RemoveAll(filepath.Join(s.files(), e.Name())); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// FuzzSession: for any answer of an agent, the client ends the session and says why.
func FuzzSession(f *testing.F) {
	for _, s := range []string{"{}\n{}\n", `{"ended":{"reason":"x","errors":["y"]}}` + "\n", "{}\n\n",
		strings.Repeat("x", 5000), `{"ended":null}` + "\n", "[]\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &Client{dial: Dial{Name: "sut"}, heard: make(chan struct{}, 1), ended: make(chan ending, 1),
			read: make(chan struct{})}
		c.ctx, c.cancel = context.WithCancelCause(context.Background())
		c.listen(bufio.NewReaderSize(bytes.NewReader(text), 4096), io.NopCloser(nil))
		if err := c.Err(); err == nil || !strings.HasPrefix(err.Error(), "host sut (agent ): the agent ") {
			t.Errorf("%v", err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func serveFor(t *testing.T, h Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, 10*time.Second, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

func call(t *testing.T, path string, r Request, first time.Duration) (bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return Call(ctx, path, r, first)
}

var pod = Request{Command: Add, Sandbox: "s", IfName: "eth0", Namespace: "default", Pod: "p", UID: "u",
	Addrs: []netip.Addr{netip.MustParseAddr("fd00::1")}}

func TestCall(t *testing.T) {
	path := serveFor(t, func(_ context.Context, r *Request, early func()) Answer {
		switch r.Pod {
		case "none":
			return Answer{}
		case "refused":
			early()
			return Answer{Lane: true, Error: "no room"}
		}
		early()
		return Answer{Lane: true}
	})
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	for name, want := range map[string]struct {
		lane bool
		err  string
	}{"p": {true, ""}, "none": {false, ""}, "refused": {true, "no room"}} {
		r := pod
		r.Pod = name
		lane, err := call(t, path, r, time.Second)
		if lane != want.lane || (err == nil) != (want.err == "") || err != nil && err.Error() != want.err {
			t.Errorf("%s: got %v, %v, want %v", name, lane, err, want)
		}
	}
}

// TestSilentClients checks that a plugin gets its answer even if many other clients are connected
// and send nothing.
func TestSilentClients(t *testing.T) {
	path := serveFor(t, func(context.Context, *Request, func()) Answer { return Answer{Lane: true} })
	for range most + 1 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	// The plugin must not wait until the silent clients' time (readTime) is over.
	if lane, err := call(t, path, pod, readTime/4); !lane || err != nil {
		t.Errorf("beside them: %v, %v", lane, err)
	}
}

// TestLanePods checks that the file LanePods has exactly the UIDs that were last written.
func TestLanePods(t *testing.T) {
	socket := t.TempDir() + "/cni.sock"
	for _, uids := range [][]string{{"b", "a", "a"}, {"a"}, nil} {
		if err := WriteLanePods(socket, uids); err != nil {
			t.Fatal(err)
		}
		for _, uid := range []string{"a", "b", "c", ""} {
			if got := AsksForLane(socket, uid); got != slices.Contains(uids, uid) {
				t.Errorf("of %q, %q: %v", uids, uid, got)
			}
		}
	}
	before, err := os.Stat(LanePods(socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteLanePods(socket, nil); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(LanePods(socket)); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same was written again: %v", err)
	}
	// A later release may add lines that are no UIDs.
	for _, path := range []string{LanePods(socket), OtherPods(socket)} {
		if err := os.WriteFile(path, []byte("# format 2\na\nb default/b\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !AsksForLane(socket, "a") || !HasNoLane(socket, "a") || AsksForLane(socket, "b") || HasNoLane(socket, "b") {
		t.Error("a file of another release is not read line by line")
	}
}

// TestFault1NobodyAnswers checks that Call returns an error in time if the agent does not run, or
// if it hangs before or after its early answer.
func TestFault1NobodyAnswers(t *testing.T) {
	if _, err := call(t, filepath.Join(t.TempDir(), "absent"), pod, time.Second); !errors.Is(err, ErrNoAgent) {
		t.Errorf("gone: %v", err)
	}
	hang := make(chan struct{})
	defer close(hang)
	path := serveFor(t, func(_ context.Context, r *Request, early func()) Answer {
		if r.Pod == "late" {
			early()
		}
		<-hang
		return Answer{}
	})
	if lane, err := call(t, path, pod, 10*time.Millisecond); lane || !errors.Is(err, ErrNoAgent) {
		t.Errorf("hangs: %v, %v", lane, err)
	}
	r := pod
	r.Pod = "late"
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if lane, err := Call(ctx, path, r, 400*time.Millisecond); !lane || err == nil || errors.Is(err, ErrNoAgent) {
		t.Errorf("hangs later: %v, %v", lane, err)
	}
}

func TestRefused(t *testing.T) {
	path := serveFor(t, func(context.Context, *Request, func()) Answer { t.Error("was taken"); return Answer{} })
	whole, err := json.Marshal(Request{Version: Version, Command: Status})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ in, want string }{
		"unknown field":   {`{"version":1,"command":"STATUS","x":1}`, `unknown field \"x\"`},
		"another version": {`{"version":2,"command":"STATUS"}`, "version 2"},
		"unknown command": {`{"version":1,"command":"EXEC"}`, "unknown command"},
		"no pod":          {`{"version":1,"command":"ADD","sandbox":"s","ifname":"eth0"}`, "without the pod"},
		"no sandbox":      {`{"version":1,"command":"DEL"}`, "without sandbox"},
		"two documents":   {string(whole) + string(whole), "after the JSON"},
	} {
		c2, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c2, c.in+"\n"); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c2)
		if !bytes.Contains(b, []byte(c.want)) {
			t.Errorf("%s: got %s, want %s", name, b, c.want)
		}
		c2.Close()
	}
	// The server closes the connection after MaxBytes without a line end.
	c2, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	_, werr := io.WriteString(c2, strings.Repeat("x", 2*MaxBytes))
	if b, _ := io.ReadAll(c2); len(b) > 0 {
		t.Errorf("got %s (%v)", b, werr)
	}
}

func FuzzDecode(f *testing.F) {
	whole, _ := json.Marshal(pod)
	f.Add(whole)
	f.Add([]byte(`{"version":1,"command":"GC","valid":[{"sandbox":"a","ifname":"b"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Decode(raw)
		if err != nil {
			return
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(b); err != nil {
			t.Errorf("%q was taken, and not again: %v", raw, err)
		}
	})
}

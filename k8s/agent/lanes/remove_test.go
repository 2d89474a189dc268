// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// TestRemove removes lanes that pods and a claim use. Nothing is left on the card and on disk, no
// pod gets a lane, and a policy brings the lanes back.
func TestRemove(t *testing.T) {
	c := &fakeCard{}
	dir := t.TempDir()
	n := start(t, c, dir, "b")
	n.o.Config = filepath.Join(dir, "k.yaml")
	if err := os.WriteFile(n.o.Config, nil, 0o600); err != nil { // as the applier does
		t.Fatal(err)
	}
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if err := errors.Join(n.Attach(t.Context(), attachment("a", "10.0.0.1", "web", "web-0")),
		n.Hold(t.Context(), inventory.Hold{Key: "k", Claim: "default/c",
			Units: []inventory.Held{{Class: "solo", Unit: "solo-0"}}})); err != nil {
		t.Fatal(err)
	}
	if n.Removing() || n.Now().Removed {
		t.Error("removed already")
	}
	for range 2 {
		if err := n.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) > 0 || c.now() != "" {
			t.Errorf("left: %v, %v, card %q", files, err, c.now())
		}
		if s := n.Now(); !n.Removing() || !s.Removed || len(s.Classes) > 0 || len(n.Attachments()) > 0 ||
			len(n.Holds()) > 0 {
			t.Errorf("%+v, pods %v, holds %v", s, n.Attachments(), n.Holds())
		}
	}
	if err := n.Attach(t.Context(), attachment("b", "10.0.0.2", "web", "web-0")); !errors.Is(err, inventory.ErrNoClass) {
		t.Errorf("a pod gets a lane: %v", err)
	}
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if s := n.Status(); !s.Applied || n.Removing() || n.Now().Removed || len(n.Now().Classes) != 4 {
		t.Errorf("not back: %+v, %+v", s, n.Now())
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err != nil {
		t.Error(err)
	}
}

// TestRemoveFails checks that Remove says why the card cannot be cleaned, keeps the files until it
// can, and tries again by itself.
func TestRemoveFails(t *testing.T) {
	c := &fakeCard{keep: errors.New("qdisc/eth0 was changed")}
	dir := t.TempDir()
	n := start(t, c, dir, "b")
	n.SetPolicy(t.Context(), redisAndWeb(1), nil)
	if err := n.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "qdisc/eth0 was changed") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	c.keep = nil
	c.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); c.now() != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not tried again")
		}
	}
	if err := n.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/cni"
)

// An agent answers the questions of niclane-cni-install.
type agent struct {
	mu     sync.Mutex
	remove bool
	last   cni.Request
}

func (a *agent) handle(_ context.Context, r *cni.Request, _ func()) cni.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Command == cni.Installer {
		a.last = *r
	}
	return cni.Answer{Remove: a.remove}
}

func (a *agent) say(remove bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remove = remove
}

// TestFollow runs niclane-cni-install beside an agent that wants niclane-cni removed, then installed
// again. Without an agent, everything stays as it is.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	conf, bin := filepath.Join(dir, "net.d"), filepath.Join(dir, "bin")
	for _, d := range []string{conf, bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list, program := filepath.Join(conf, "10-a.conflist"), filepath.Join(dir, "plugin")
	const before = `{"name": "a", "plugins": [{"type": "bridge"}]}`
	for path, text := range map[string]string{list: before, program: "#!"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{program: program, installed: filepath.Join(bin, "niclane-cni"), dir: conf,
		agent: filepath.Join(dir, "cni.sock"), log: slog.New(slog.DiscardHandler), asks: 10 * time.Millisecond,
		firstAnswer: 500 * time.Millisecond}
	installed := func() bool {
		text, err := os.ReadFile(list)
		_, perr := os.Stat(n.installed)
		chained := err == nil && strings.Contains(string(text), "niclane-cni")
		if chained && perr != nil {
			t.Error("chained, and the program is not there")
		}
		return chained
	}
	a := &agent{remove: true}
	serve := func() (stop func()) {
		l, err := cni.Listen(n.agent)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cni.Serve(ctx, l, time.Second, a.handle) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never: ", what)
			}
		}
	}
	reported := func(removed bool, reason string) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.last.Removed == removed && strings.Contains(a.last.Reason, reason)
		}
	}
	stop := serve()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.follow(ctx) }()
	until("removed from the start", reported(true, ""))
	if installed() {
		t.Error("chained against the agent's word")
	}
	a.say(false)
	until("installed", installed)
	if err := os.WriteFile(list, []byte("{"), 0o755); err != nil {
		t.Fatal(err)
	}
	a.say(true)
	until("a list that cannot be read is reported", reported(false, "10-a.conflist"))
	if err := os.WriteFile(list, []byte(before), 0o755); err != nil {
		t.Fatal(err)
	}
	until("removed", reported(true, ""))
	if _, err := os.Stat(n.installed); err == nil {
		t.Error("the program is left")
	}
	stop() // as at the agent's end
	cancel()
	if err := <-done; err != nil || installed() {
		t.Errorf("at the end: %v, installed %v", err, installed())
	}
}

// TestFollowAlone checks that niclane-cni is installed if no agent answers for a while, and that it
// stays at the end.
func TestFollowAlone(t *testing.T) {
	dir := t.TempDir()
	list, program := filepath.Join(dir, "10-a.conflist"), filepath.Join(dir, "plugin")
	for path, text := range map[string]string{list: `{"name": "a", "plugins": [{"type": "bridge"}]}`, program: "#!"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{program: program, installed: filepath.Join(dir, "niclane-cni"), dir: dir,
		agent: filepath.Join(dir, "cni.sock"), log: slog.New(slog.DiscardHandler), asks: 10 * time.Millisecond,
		firstAnswer: 500 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begun := time.Now()
	go func() { done <- n.follow(ctx) }()
	for {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "niclane-cni") {
			break
		}
		if time.Since(begun) > 20*n.firstAnswer {
			t.Fatal("not installed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if took := time.Since(begun); took < n.firstAnswer {
		t.Errorf("installed after %v, before an agent could answer", took)
	}
	cancel()
	if text, err := os.ReadFile(list); <-done != nil || err != nil || !strings.Contains(string(text), "niclane-cni") {
		t.Errorf("at the end: %s, %v", text, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package chain_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/cni/chain"
)

const theirs = `{"cniVersion": "1.0.0", "name": "pods", "x-vendor": {"kept": [1, 2]},
 "plugins": [{"type": "cilium-cni", "log-file": "/var/log/cilium"}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAdd checks that Add appends niclane-cni once and changes nothing else in the list.
func TestAdd(t *testing.T) {
	once, err := chain.Add([]byte(theirs), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"x-vendor"`, `"log-file": "/var/log/cilium"`, `"portMappings"`,
		`"cniVersion": "1.0.0"`} {
		if !strings.Contains(string(once), want) {
			t.Errorf("lost %s:\n%s", want, once)
		}
	}
	if i, j := strings.Index(string(once), "portmap"), strings.Index(string(once), chain.Type); i < 0 || j < i {
		t.Errorf("not behind the others:\n%s", once)
	}
	twice, err := chain.Add(once, false)
	if err != nil || string(twice) != string(once) {
		t.Errorf("added twice: %v\n%s", err, twice)
	}
	back, err := chain.Remove(twice)
	if err != nil || strings.Contains(string(back), chain.Type) || !strings.Contains(string(back), "portmap") {
		t.Errorf("removed: %v\n%s", err, back)
	}
	// If another plugin comes after niclane-cni, Add moves niclane-cni to the end.
	behind := `{"plugins": [{"type": "bridge"}, {"type": "niclane-cni", "socket": "/old"}, {"type": "late"}]}`
	again, err := chain.Add([]byte(behind), false)
	if err != nil || strings.Count(string(again), chain.Type) != 1 ||
		strings.Index(string(again), "late") > strings.Index(string(again), chain.Type) {
		t.Errorf("not last again: %v\n%s", err, again)
	}
}

// TestStatusOfAgent checks that the argument statusOfAgent of Add changes only the key
// statusOfAgent of the entry.
func TestStatusOfAgent(t *testing.T) {
	const own = `{"plugins": [{"type": "bridge"}, {"type": "niclane-cni", "socket": "/own", "statusOfAgent": true}]}`
	on, err := chain.Add([]byte(own), true)
	if err != nil || string(on) != own {
		t.Errorf("on, and on: %v\n%s", err, on)
	}
	off, err := chain.Add(on, false)
	if err != nil || strings.Contains(string(off), "statusOfAgent") ||
		!strings.Contains(string(off), `"socket": "/own"`) {
		t.Errorf("off: %v\n%s", err, off)
	}
	if again, err := chain.Add(off, false); err != nil || string(again) != string(off) {
		t.Errorf("off, and off: %v\n%s", err, again)
	}
	if on, err = chain.Add(off, true); err != nil || !strings.Contains(string(on), `"statusOfAgent": true`) ||
		!strings.Contains(string(on), `"socket": "/own"`) {
		t.Errorf("on again: %v\n%s", err, on)
	}
	if fresh, err := chain.Add([]byte(theirs), true); err != nil ||
		!strings.Contains(string(fresh), `"statusOfAgent": true`) ||
		!strings.Contains(string(fresh), `"bandwidth": true`) {
		t.Errorf("added: %v\n%s", err, fresh)
	}
}

// TestRefused checks that Add refuses an invalid list, with an error that names the problem.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`: "not a JSON object", `{"name": "x"}`: "plugins: want a list", `{"plugins": []}`: "at least one",
		`[]`: "not a JSON object",
	} {
		if _, err := chain.Add([]byte(text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := chain.Remove([]byte(`{"plugins": [{"type": "niclane-cni"}]}`)); err == nil {
		t.Error("a list without plugins is left")
	}
}

// TestFirst checks that First returns the configuration file whose name sorts first.
func TestFirst(t *testing.T) {
	dir := t.TempDir()
	if _, err := chain.First(filepath.Join(dir, "absent")); !errors.Is(err, chain.ErrNoNetwork) {
		t.Errorf("no directory: %v", err)
	}
	write(t, filepath.Join(dir, "20-b.conflist"), theirs)
	write(t, filepath.Join(dir, "00-readme.txt"), "")
	if got, err := chain.First(dir); got != filepath.Join(dir, "20-b.conflist") || err != nil {
		t.Errorf("first: %s, %v", got, err)
	}
	write(t, filepath.Join(dir, "10-a.conf"), "{}")
	if got, err := chain.First(dir); got != filepath.Join(dir, "10-a.conf") || err != nil {
		t.Errorf("a single plugin: %s, %v", got, err)
	}
}

// TestKeep checks that Keep adds niclane-cni again after the pod network has written its list
// again, and when the list appears only after Keep has started.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "05-cilium.conflist")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	tell := func(_ context.Context, err error) error { t.Errorf("told %v", err); return nil }
	go func() { ended <- chain.Keep(ctx, dir, true, slog.New(slog.NewTextHandler(t.Output(), nil)), tell) }()
	for range 2 {
		write(t, list, theirs)
		for deadline := time.After(10 * time.Second); !strings.Contains(read(t, list), chain.Type); {
			select {
			case <-deadline:
				t.Fatal("not chained")
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	if !strings.Contains(read(t, list), `"statusOfAgent": true`) {
		t.Errorf("its STATUS is not the agent's:\n%s", read(t, list))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(list); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", info, err)
	}
	if err := chain.Undo(dir); err != nil || strings.Contains(read(t, list), chain.Type) {
		t.Errorf("undone: %v\n%s", err, read(t, list))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Error("left:", left, err)
	}
}

// TestContest checks that Keep gives way to a program that takes niclane-cni out each time, and says
// who does so.
func TestContest(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "05-cilium.conflist")
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan error, 1), make(chan error, 1)
	tell := func(_ context.Context, err error) error { told <- err; return nil }
	go func() { ended <- chain.Keep(ctx, dir, false, slog.New(slog.NewTextHandler(t.Output(), nil)), tell) }()
	taken := 0
	for why := error(nil); why == nil; {
		if text, err := os.ReadFile(list); err != nil || strings.Contains(string(text), chain.Type) {
			taken++
			write(t, list, theirs)
		}
		select {
		case why = <-told:
			if !strings.Contains(why.Error(), "cni.exclusive") {
				t.Error(why)
			}
		case <-time.After(time.Millisecond):
		}
		if taken > 20 {
			t.Fatal("Keep does not give way")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := read(t, list); strings.Contains(text, chain.Type) {
		t.Errorf("chained after it has given way:\n%s", text)
	}
}

// lines is an io.Writer that sends each line of a log to a channel.
type lines chan string

func (l lines) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

// TestKeepTells checks that Keep reports a problem again until the report succeeds, and then stops.
// It must not report a list that is invalid only for a moment, or a node without a network.
func TestKeepTells(t *testing.T) {
	dir := t.TempDir()
	told, answer, logged := make(chan string), make(chan error), make(lines, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	tell := func(_ context.Context, why error) error { told <- why.Error(); return <-answer }
	go func() { ended <- chain.Keep(ctx, dir, false, slog.New(slog.NewTextHandler(logged, nil)), tell) }()
	says := func(what string) {
		t.Helper()
		select {
		case got := <-told:
			if !strings.Contains(got, what) {
				t.Fatalf("told %q, want %q", got, what)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("not told: %s", what)
		}
	}
	first := filepath.Join(dir, "05-first.conflist")
	write(t, first, "[]")
	for seen := false; !seen; { // this list is replaced within a second, so it must not be reported
		select {
		case line := <-logged:
			seen = strings.Contains(line, "cannot unmarshal array")
		case got := <-told:
			t.Fatalf("told %q at once", got)
		}
	}
	write(t, first, "{")
	says("05-first.conflist: not a JSON object: unexpected end")
	answer <- errors.New("no agent yet")
	says("05-first.conflist: not a JSON object: unexpected end")
	answer <- nil
	write(t, first, `{"name": "pods"}`)
	says("05-first.conflist: ")
	answer <- nil
	write(t, first, "{")
	says("05-first.conflist: not a JSON object: unexpected end")
	answer <- nil
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-told:
		t.Errorf("told %q of a node without a network", got)
		answer <- nil
	case <-time.After(1500 * time.Millisecond): // longer than settled (1 s)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

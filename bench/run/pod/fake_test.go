// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain makes the test program a fake kubectl if it is started under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(kubectl(os.Getenv("FAKE_KUBECTL"), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// kubectl acts as the program kubectl. Files in dir control it: "fail-VERB" is the error of a verb,
// "watch-N" has the events of the Nth watch. If "hold-N" exists, that watch then waits until it is
// told to end. kubectl appends each call to "calls". It writes what it creates to "pod", and its
// process group to "group".
func kubectl(dir string, args []string) int {
	read := func(name string) ([]byte, bool) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		return text, err == nil
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			panic(err)
		}
	}
	calls, _ := read("calls")
	write("calls", append(calls, strings.Join(args, " ")+"\n"...))
	verb := args[slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })]
	if text, fails := read("fail-" + verb); fails {
		os.Stderr.Write(text)
		return 1
	}
	switch {
	case verb == "create":
		text, _ := io.ReadAll(os.Stdin)
		write("pod", text)
		write("group", fmt.Append(nil, unix.Getpgrp()))
		var pod map[string]any
		if err := json.Unmarshal(text, &pod); err != nil {
			panic(err)
		}
		pod["metadata"].(map[string]any)["namespace"] = "bench"
		pod["metadata"].(map[string]any)["uid"] = "u1"
		out, _ := json.Marshal(pod)
		os.Stdout.Write(out)
	case verb == "get" && slices.Contains(args, "--watch"):
		n := strings.Count(string(calls), "--watch") + 1
		pod, _ := read("pod")
		var made struct{ Metadata struct{ Name string } }
		_ = json.Unmarshal(pod, &made)
		events, there := read(fmt.Sprint("watch-", n))
		if !there {
			fmt.Fprintf(os.Stderr, "Error from server (NotFound): pods %q not found\n", made.Metadata.Name)
			return 1
		}
		os.Stdout.WriteString(strings.ReplaceAll(string(events), "NAME", made.Metadata.Name))
		if _, hold := read(fmt.Sprint("hold-", n)); hold {
			end := make(chan os.Signal, 1)
			signal.Notify(end, syscall.SIGTERM)
			select {
			case <-end:
			case <-time.After(time.Minute):
			}
		}
	case verb == "patch":
		write("patched", nil)
	case verb == "get" && slices.Contains(args, "lanepolicy"):
		text, _ := read("policy")
		if after, ok := read("patched-policy"); ok {
			if _, patched := read("patched"); patched {
				text = after
			}
		}
		os.Stdout.Write(text)
	case verb == "get", verb == "version", verb == "logs":
		text, _ := read(verb)
		os.Stdout.Write(text)
	case verb == "delete":
		_ = os.Remove(filepath.Join(dir, "pod"))
	}
	return 0
}

// A fake is a cluster for the fake kubectl: files in dir.
type fake struct {
	t   *testing.T
	dir string
}

func newFake(t *testing.T, files map[string]string) fake {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("FAKE_KUBECTL", dir)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fake{t, dir}
}

func (f fake) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	return string(text)
}

// seen returns, as JSON, a watch event of type kind about a pod with the given status.
func seen(kind, status string) string {
	return fmt.Sprintf(`{"type": %q, "object": {"metadata": {"name": "NAME", "namespace": "bench", "uid": "u1"}, "spec": {"nodeName": "node1", "containers": [{"name": "app"}, {"name": "aside"}]}, "status": %s}}`+"\n", kind, status)
}

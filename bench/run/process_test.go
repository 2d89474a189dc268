// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shell starts a script that says when it is ready.
func shell(t *testing.T, script string) *process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := start("the script", cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.endWithin(0) })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessEnds(t *testing.T) {
	p := shell(t, `trap 'exit 0' TERM; echo; while :; do :; done`)
	if err := p.ended(); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if err := p.ended(); err == nil || err.Error() != "the script has ended: by itself" {
		t.Error(err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// How one has ended is told with what it said at last.
func TestLastWords(t *testing.T) {
	p, err := start("the server", exec.Command("sh", "-c", "echo starting >&2; echo out of memory >&2; exit 3"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.over()
	if err := p.ended(); err == nil || err.Error() != "the server has ended: exit status 3: out of memory" {
		t.Error(err)
	}
}

// What does not end when asked is killed, and named.
func TestProcessIsKilled(t *testing.T) {
	p := shell(t, `trap '' TERM; echo; while :; do :; done`)
	if err := p.endWithin(20 * time.Millisecond); err == nil || err.Error() != "the script: did not end when asked" {
		t.Error(err)
	}
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
)

// TestTranscripts runs the transcripts in the documents. Transcripts are blocks fenced as console.
// A shell in an empty directory runs each command after "$ ". Its output must be what the document
// shows. A line "..." stands for any lines, and "..." within a line for any text. "$ cat > NAME
// <<EOF" makes a file. Two or more spaces stand for two or more. All blocks of a document run in order, in one directory.
func TestTranscripts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the transcripts raise a lab")
	}
	self, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	bin := t.TempDir()
	// If the test binary has the name niclane, testscript.Main makes it act as niclane. Copy the
	// binary: niclane starts itself by its real path, and with a link that path would have the
	// binary's own name.
	must.Do(t, os.WriteFile(filepath.Join(bin, "niclane"), self, 0o755))
	programs.Build(t, bin, program.Bench)
	removeIfNew(t, "/var/lib/niclane")
	removeIfNew(t, "/run/niclane", "lock")
	ran := 0
	docs := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		must.Do(t, err)
		docs = append(docs, more...)
	}
	for _, doc := range docs {
		if strings.HasSuffix(doc, "/migrating-from-adq-k8s-plugins.md") {
			continue // transcripts of niclane-agent, tested with it
		}
		text, err := os.ReadFile(doc)
		must.Do(t, err)
		steps := transcript(string(text))
		ran += len(steps)
		dir := t.TempDir()
		for _, s := range steps {
			cmd := exec.Command("sh", "-c", s.command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			_ = cmd.Run() // the output is compared instead
			if !matches(s.output, out.String()) {
				t.Errorf("%s:%d: $ %s\nprints:\n%s\nbut the document shows:\n%s", doc, s.line, s.command, out.String(),
					s.output)
			}
		}
	}
	if ran == 0 {
		t.Error("no transcript found")
	}
}

// removeIfNew removes dir and the named files in it at the end of the test. It does nothing if dir
// exists before the test. It keeps dir if it has other files.
func removeIfNew(t *testing.T, dir string, files ...string) {
	if _, err := os.Stat(dir); err == nil {
		return
	}
	t.Cleanup(func() {
		for _, f := range files {
			_ = os.Remove(filepath.Join(dir, f))
		}
		_ = os.Remove(dir)
	})
}

type step struct {
	line            int
	command, output string
}

var fence = regexp.MustCompile("^```")

// transcript returns the commands of a document with their output.
func transcript(text string) []step {
	var steps []step
	inside, here := false, ""
	for i, line := range strings.Split(text, "\n") {
		switch {
		case fence.MatchString(line):
			inside = strings.TrimPrefix(line, "```") == "console"
		case !inside:
		case here != "": // inside a here document
			s := &steps[len(steps)-1]
			s.command += "\n" + line
			if line == here {
				here = ""
			}
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
			if _, word, ok := strings.Cut(line, "<<"); ok {
				here = strings.TrimSpace(word)
			}
		case len(steps) > 0:
			steps[len(steps)-1].output += line + "\n"
		}
	}
	return steps
}

// gap is what stands between the columns of a table. Its width follows the longest cell, which can be
// in a row that the document leaves out.
var gap = regexp.MustCompile(` {2,}`)

// matches reports whether output is as the document shows it.
func matches(want, got string) bool {
	var re strings.Builder
	for _, line := range strings.SplitAfter(want, "\n") {
		if line == "...\n" {
			re.WriteString(`(?:.*\n)*`)
		} else {
			quoted := strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`)
			re.WriteString(gap.ReplaceAllString(quoted, ` {2,}`))
		}
	}
	return regexp.MustCompile(`\A` + re.String() + `\z`).MatchString(got)
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"a\nb\n", "a\nb\n", true},
		{"a\nb\n", "a\nc\n", false},
		{"a\n...\nz\n", "a\nb\nc\nz\n", true},
		{"a\n...\nz\n", "a\nb\n", false},
		{"a.c\n", "abc\n", false},
		{"a ... d\n", "a b c d\n", true},
		{"a ... d\n", "a\nd\n", false},
		{"a  b\n", "a    b\n", true},
		{"a  b\n", "a b\n", false},
		{"", "x\n", false},
	} {
		if got := matches(c.want, c.got); got != c.ok {
			t.Errorf("matches(%q, %q) = %v, want %v", c.want, c.got, got, c.ok)
		}
	}
}

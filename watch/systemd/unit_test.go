// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/watch/systemd"
)

var update = flag.Bool("update", false, "write the goldens anew")

var one = systemd.Unit{Devices: []string{"eth0"}, Config: "/etc/niclane/eth0.yaml", Command: "/usr/bin/niclane"}

var units = map[string]systemd.Unit{
	"one": one,
	"group": {Devices: []string{"enp1s0f0-np0", "eth1.5"}, Config: "/srv/100% lanes/$a.yaml",
		Command: "/opt/nic lane/niclane",
		Options: []string{"--listen", "127.0.0.1:9417"}, Groups: true},
	"waits": {Devices: one.Devices, Config: one.Config, Command: one.Command, Options: []string{"--waits"}},
}

func TestRender(t *testing.T) {
	for name, u := range units {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("testdata", name+".service")
			got := u.Render()
			if *update {
				must.Do(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			must.Do(t, err)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestVerify: systemd understands every line of a unit, and splits the command line into the right
// words.
func TestVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	self, err := os.Executable() // the command must exist
	must.Do(t, err)
	dir := t.TempDir()
	for name, u := range units {
		u.Command = self
		path, _, err := u.Write(dir)
		must.Do(t, err)
		out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "niclane-watch@") {
				t.Errorf("%s: %s", name, line)
			}
		}
		if err != nil && len(out) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Check that systemd on this machine would report a line that it does not understand.
	path := filepath.Join(dir, systemd.Name("eth0"))
	text, err := os.ReadFile(path)
	must.Do(t, err)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "KillMode=process", "KillMode=soon", 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); !strings.Contains(string(out),
		"soon") {
		t.Errorf("a wrong value is not found:\n%s", out)
	}
}

func TestWriteRemove(t *testing.T) {
	dir := t.TempDir()
	path, changed, err := one.Write(dir)
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	link := filepath.Join(dir, "multi-user.target.wants", systemd.Name("eth0"))
	if to, err := filepath.EvalSymlinks(link); err != nil || to != path {
		t.Errorf("link to %s, %v", to, err)
	}
	if _, changed, err := one.Write(dir); err != nil || changed {
		t.Errorf("again: changed %v, %v", changed, err)
	}
	other := one
	other.Config = "/etc/niclane/other.yaml"
	if _, changed, err := other.Write(dir); err != nil || !changed {
		t.Errorf("another file: changed %v, %v", changed, err)
	}
	if _, err := systemd.Remove(dir, "eth0"); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := systemd.Remove(dir, "eth0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
}

// TestEdited: Write and Remove do not change a unit that was edited.
func TestEdited(t *testing.T) {
	for name, edit := range map[string]func(string) string{
		"a line more":  func(s string) string { return s + "Environment=A=b\n" },
		"no checksum":  func(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest },
		"another one":  func(string) string { return "[Service]\nExecStart=/bin/true\n" },
		"a line less":  func(s string) string { return strings.Replace(s, "NoNewPrivileges=yes\n", "", 1) },
		"nothing left": func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, _, err := one.Write(dir)
			must.Do(t, err)
			text, err := os.ReadFile(path)
			must.Do(t, err)
			edited := edit(string(text))
			must.Do(t, os.WriteFile(path, []byte(edited), 0o644))
			var e *systemd.EditedError
			if _, _, err := one.Write(dir); !errors.As(err, &e) || e.Path != path {
				t.Errorf("write: %v", err)
			}
			if _, err := systemd.Remove(dir, "eth0"); !errors.As(err, &e) {
				t.Errorf("remove: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != edited {
				t.Errorf("it is %q now, %v", now, err)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*systemd.Unit)
		want   string // "": no error
	}{
		"plain":         {func(*systemd.Unit) {}, ""},
		"other letters": {func(u *systemd.Unit) { u.Config = "/etc/niclane/größe %n $x.yaml" }, ""},
		"a newline": {func(u *systemd.Unit) { u.Config = "/etc/x\nExecStartPre=sh.yaml" },
			`"/etc/x\nExecStartPre=sh.yaml": a unit needs names in UTF-8 without control characters`},
		"of Latin 1":  {func(u *systemd.Unit) { u.Config = "/etc/x\u0085y.yaml" }, "without control characters"},
		"no UTF-8":    {func(u *systemd.Unit) { u.Config = "/etc/x\xff.yaml" }, "without control characters"},
		"in a device": {func(u *systemd.Unit) { u.Devices = []string{"eth0", "a\x7fb"} }, `"a\x7fb"`},
		"in an option": {func(u *systemd.Unit) { u.Options = []string{"--listen", "unix:/run/niclane/\t"} },
			"without control characters"},
		"in the command": {func(u *systemd.Unit) { u.Command = "/opt/a\rb" }, "without control characters"},
		"a temporary file": {func(u *systemd.Unit) { u.Config = "/tmp/a.yaml" },
			"/tmp/a.yaml: niclane-watch@eth0.service could not read it: it has a /tmp of its own"},
		"another":             {func(u *systemd.Unit) { u.Config = "/var/tmp/b/a.yaml" }, "could not read it"},
		"a home":              {func(u *systemd.Unit) { u.Config = "/root/a.yaml" }, "sees no home directories"},
		"until the next boot": {func(u *systemd.Unit) { u.Config = "/run/a.yaml" }, "gone at the next boot"},
		"like a home":         {func(u *systemd.Unit) { u.Config = "/rooted/tmp/a.yaml" }, ""},
		"a program that is seen": {func(u *systemd.Unit) { u.Command = "/tmp/niclane" },
			"/tmp/niclane: niclane-watch@eth0.service could not start it"},
	} {
		t.Run(name, func(t *testing.T) {
			u := one
			c.change(&u)
			err := u.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
)

// built builds the packages twice and returns the directory with both builds. It runs only for
// "make test-packages", because it takes minutes.
func built(t *testing.T) string {
	t.Helper()
	if os.Getenv("NICLANE_TEST_PACKAGES") == "" {
		t.Skip("make test-packages builds and tests the packages: it takes minutes")
	}
	dir := t.TempDir()
	for _, name := range []string{"first", "second"} {
		command(t, "./build", filepath.Join(dir, name))
	}
	return dir
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestPackages(t *testing.T) {
	dir := built(t)
	first, err := filepath.Glob(filepath.Join(dir, "first", "*"))
	if err != nil || len(first) != 4 {
		t.Fatalf("built %v, %v; want a deb and an rpm of each program", first, err)
	}
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(dir, "first", pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		return found[0]
	}
	deb, rpm := one("niclane_*.deb"), one("niclane-[0-9]*.rpm")
	benchDeb, benchRPM := one("niclane-bench_*.deb"), one("niclane-bench-[0-9]*.rpm")
	t.Run("the same bytes", func(t *testing.T) {
		for _, p := range first {
			a, err := os.ReadFile(p)
			must.Do(t, err)
			b, err := os.ReadFile(filepath.Join(dir, "second", filepath.Base(p)))
			must.Do(t, err)
			if !bytes.Equal(a, b) {
				t.Errorf("%s differs from one build to the next", filepath.Base(p))
			}
		}
	})
	t.Run("lintian", func(t *testing.T) { lintian(t, deb) })
	t.Run("lintian, niclane-bench", func(t *testing.T) { lintian(t, benchDeb) })
	t.Run("rpm", func(t *testing.T) { readRPM(t, rpm, deb, "/etc/niclane/lanes.yaml\n") })
	t.Run("rpm, niclane-bench", func(t *testing.T) { readRPM(t, benchRPM, benchDeb, "") })
	t.Run("install, run, purge", func(t *testing.T) { installRunPurge(t, deb, benchDeb) })
	t.Run("rpm: install, run, erase", func(t *testing.T) { installRunErase(t, rpm) })
}

func lintian(t *testing.T, deb string) {
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("no lintian")
	}
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0",
		deb).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if regexp.MustCompile(`(?m)^E: `).Match(out) {
		t.Errorf("%s", out)
	}
	t.Logf("%s", out)
}

// readRPM checks that the rpm contains the same files as the deb, with the same modes, owners and
// sizes.
func readRPM(t *testing.T, rpm, deb, configuration string) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Fatalf("%v: make test-packages installs it", err)
	}
	// dpkg-deb prints lines such as "-rwxr-xr-x root/root 123 2026-11-21 17:32 ./usr/bin/niclane".
	want := map[string]string{}
	for line := range strings.Lines(command(t, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		if len(f) == 6 && f[0][0] == '-' {
			want[strings.TrimPrefix(f[5], ".")] = f[0] + " " + f[1] + " " + f[2]
		}
	}
	got := map[string]string{}
	query := "[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILESIZES} %{FILENAMES}\n]"
	for line := range strings.Lines(command(t, "rpm", "-qp", "--nosignature", "--queryformat", query, rpm)) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0][0] == '-' {
			got[f[3]] = strings.Join(f[:3], " ")
		}
	}
	// These paths differ between the distributions.
	for from, to := range map[string]string{
		"/lib/systemd/system/":               "/usr/lib/systemd/system/",
		"/usr/share/zsh/vendor-completions/": "/usr/share/zsh/site-functions/",
		"/usr/share/lintian/overrides/":      "",
	} {
		for name, what := range want {
			if rest, ok := strings.CutPrefix(name, from); ok {
				delete(want, name)
				if to != "" {
					want[to+rest] = what
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-deb +rpm):\n%s", diff)
	}
	if got := command(t, "rpm", "-qpc", "--nosignature", rpm); got != configuration {
		t.Errorf("configuration files: %q", got)
	}
	command(t, "rpm", "-Kv", "--nosignature", rpm)
}

// freshRoot makes a new directory with a minimal Debian system.
func freshRoot(t *testing.T) root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: a root directory of its own needs it")
	}
	archive, err := exec.Command("../tools/debianroot", "man-db,bash-completion,zsh,fish,iproute2").Output()
	if err != nil {
		var text string
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			text = string(e.Stderr)
		}
		t.Skipf("no fresh Debian to install into: %v\n%s", err, text)
	}
	r := root(filepath.Join(t.TempDir(), "root"))
	must.Do(t, os.Mkdir(string(r), 0o755))
	command(t, "tar", "-C", string(r), "--zstd", "-xf", strings.TrimSpace(string(archive)))
	return r
}

// installRunPurge installs the packages in a new Debian system, uses them, and purges them.
func installRunPurge(t *testing.T, deb, bench string) {
	r := freshRoot(t)
	before := r.files(t)
	command(t, "cp", deb, filepath.Join(string(r), "niclane.deb"))
	r.do(t, "dpkg -i /niclane.deb && rm /niclane.deb")
	r.wants(t, "want the package niclane-bench installed", "niclane report /srv 2>&1 || true")
	command(t, "cp", bench, filepath.Join(string(r), "bench.deb"))
	r.do(t, "dpkg -i /bench.deb && rm /bench.deb")

	pages := []string{"8 niclane", "8 niclane-bench", "5 lanes.yaml", "5 experiment.yaml", "5 hosts.yaml"}
	commands, err := filepath.Glob("../docs/man/*.8.md")
	if err != nil || len(commands) == 0 {
		t.Fatal("no manual pages of commands", err)
	}
	for _, c := range commands {
		pages = append(pages, "8 "+strings.TrimSuffix(filepath.Base(c), ".8.md"))
	}
	for _, page := range pages {
		section, name, _ := strings.Cut(page, " ")
		out := r.do(t, "MANWIDTH=80 man "+page)
		for _, want := range []string{name + "(" + section + ")", "NAME", "SEE ALSO"} {
			if !strings.Contains(out, want) {
				t.Errorf("man %s has no %q:\n%.400s", page, want, out)
			}
		}
		// Ask only for groff's warnings about the page, and not for the page.
		if out := r.do(t, "MANWIDTH=80 man --warnings=w "+page+" 2>&1 >/dev/null"); out != "" {
			t.Errorf("man %s: %s", page, out)
		}
	}
	r.wants(t, "plan", `bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader niclane; COMP_WORDS=(niclane pl) COMP_CWORD=1 COMP_LINE="niclane pl" COMP_POINT=10; __start_niclane; echo ${COMPREPLY[@]}'`)
	r.wants(t, "_niclane", `zsh -c 'autoload -Uz compinit; compinit -D; print $_comps[niclane]'`)
	r.wants(t, "plan", `HOME=$(mktemp -d); fish -c 'complete -C "niclane pl"'; rm -r "$HOME"`)

	r.wants(t, "first-lane", `HOME=$(mktemp -d); fish -c 'complete -C "niclane bench fir"'; rm -r "$HOME"`)

	r.wants(t, "paper:", "niclane refresh --list")
	r.wants(t, "queue-set", "ip link add lane0 type veth peer name lane1 && ip link set lane0 up && niclane probe lane0")
	r.wants(t, "lanes.yaml:", "niclane plan /etc/niclane/lanes.yaml 2>&1 || test $? = 1")
	// When the package is removed, its lanes must be undone, and must not come back at the next boot.
	if out := r.do(t, laneInPlace+`
		dpkg --purge niclane-bench niclane
`+laneUndone); !strings.HasSuffix(out, "undone exactly\n") {
		t.Errorf("purging does not undo: %s", out)
	}
	if diff := cmp.Diff(before, r.files(t)); diff != "" {
		t.Errorf("after purge (-before +after):\n%s", diff)
	}
}

// Scripts that run before and after the removal of a package. The first one applies and persists a
// lane. The second one checks that the lane and its unit no longer exist.
const (
	laneInPlace = `
		ip link add lane0 numtxqueues 4 numrxqueues 4 type veth peer name lane1 && ip link set lane0 up
		printf 'version: 1\nglobals: {dev: lane0, link-rate: 1gbit, force: {queue-set: shared}}\nlanes: {web: {queues: 1, guarantee: 20%%, ports: [80]}}\n' >/srv/web.yaml
		tc qdisc show dev lane0 >/root/before
		if niclane plan /srv/web.yaml; then echo the plan is empty; exit 1; fi
		niclane apply /srv/web.yaml
		niclane persist /srv/web.yaml
		ls /etc/systemd/system | grep -q niclane-watch@lane0
		if tc qdisc show dev lane0 | cmp -s - /root/before; then echo apply has changed nothing; exit 1; fi`
	laneUndone = `
		if ls /etc/systemd/system | grep niclane; then exit 1; fi
		tc qdisc show dev lane0 | cmp - /root/before
		rm /srv/web.yaml /root/before
		echo undone exactly`
)

// installRunErase installs, uses and erases the rpm, in a Debian root on which the host's rpm works
// from outside. The scriptlets and the list of files are those of the package.
func installRunErase(t *testing.T, rpm string) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Fatalf("%v: make test-packages installs it", err)
	}
	r := freshRoot(t)
	// On distributions with rpm, this directory belongs to the package zsh.
	must.Do(t, os.MkdirAll(filepath.Join(string(r), "usr/share/zsh/site-functions"), 0o755))
	before := r.files(t)
	command(t, "cp", rpm, filepath.Join(string(r), "niclane.rpm"))
	do := func(script string) string {
		t.Helper()
		return r.around(t, `
			rpm() { command rpm --root "$0" --dbpath /var/lib/rpm --nosignature "$@"; }
`+script)
	}
	do(`rpm -i --nodeps "$0/niclane.rpm" && rm "$0/niclane.rpm"`)
	if out := do(`rpm -V --nodeps niclane && echo as packaged`); out != "as packaged\n" {
		t.Errorf("rpm -V: %s", out)
	}
	// Check that rpm -V reports a changed file.
	if out := do(`cp -p "$0/usr/share/niclane/lanes.schema.json" "$0/kept"; echo >>"$0/usr/share/niclane/lanes.schema.json"
		rpm -V --nodeps niclane || true; mv "$0/kept" "$0/usr/share/niclane/lanes.schema.json"`); !strings.Contains(out, "lanes.schema.json") {
		t.Errorf("rpm -V finds nothing: %s", out)
	}
	// While a lane cannot be rolled back, rpm must not erase the package. Afterwards it must.
	out := do(`inside '` + strings.ReplaceAll(laneInPlace, "'", `'\''`) + `'
		inside 'tc qdisc replace dev lane0 root handle 7: pfifo'
		if rpm -e --nodeps niclane; then echo erased all the same; exit 1; fi
		rpm -V --nodeps niclane
		test -e "$0/etc/systemd/system/niclane-watch@lane0.service"
		inside 'tc qdisc del dev lane0 root'
		rpm -e --nodeps niclane
		inside '` + laneUndone + `'`)
	if !strings.Contains(out, "niclane is not removed: lanes are still there") || !strings.HasSuffix(out, "undone exactly\n") {
		t.Errorf("erasing does not undo, or is not refused before: %s", out)
	}
	command(t, "rm", "-r", filepath.Join(string(r), "var/lib/rpm"))
	if diff := cmp.Diff(before, r.files(t)); diff != "" {
		t.Errorf("after erase (-before +after):\n%s", diff)
	}
}

// A root is the path of a directory with a Debian system.
type root string

// do runs a script inside the root, in mount, process and network namespaces of its own. It returns
// the script's output.
func (r root) do(t *testing.T, script string) string {
	t.Helper()
	return r.around(t, `inside "$1"`, script)
}

// around runs a script outside the root, in namespaces of its own. In the script, the shell
// function inside runs a script inside the root.
func (r root) around(t *testing.T, script string, args ...string) string {
	t.Helper()
	const enter = `mount -t sysfs sysfs "$0/sys"
		inside() { chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 sh -ec "$1"; }
	`
	return command(t, "unshare", append([]string{"--mount", "--net", "--pid", "--fork", "--kill-child",
		"--mount-proc=" + filepath.Join(string(r), "proc"), "sh", "-ec", enter + script, string(r)}, args...)...)
}

func (r root) wants(t *testing.T, want, script string) {
	t.Helper()
	if out := r.do(t, script); !strings.Contains(out, want) {
		t.Errorf("no %q in what this prints: %s\n%s", want, script, out)
	}
}

// files returns the mode and content of every file. It leaves out the caches and logs of dpkg and
// man. It includes dpkg's list of the packages whose files it has.
func (r root) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(string(r), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, string(r))
		if slices.Contains([]string{"/proc", "/sys", "/dev", "/var/log", "/var/cache/man"}, rel) {
			return filepath.SkipDir
		}
		if strings.HasPrefix(rel, "/var/lib/dpkg/") && !strings.HasPrefix(rel, "/var/lib/dpkg/info") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		what := fi.Mode().String()
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			what += " " + hex.EncodeToString(sum[:4])
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" -> %s", to)
		}
		out[rel] = what
		return nil
	})
	must.Do(t, err)
	return out
}

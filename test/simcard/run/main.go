// SPDX-License-Identifier: Apache-2.0

// Command run builds the simulated card for other kernels than the machine's own. In QEMU guests,
// which see the machine's file system, it runs the card's conformance tests, niclane's tests on the
// card, and the tests of lanes for pods. It fails if a test fails, if a test is skipped that the
// kernel should run, or if the kernel reports an error.
//
// It loads nothing into the machine's own kernel. out/simcard has the modules and the guests'
// output.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// series lists the kernels to test, by the names that tools/kernel uses.
const series = "6.1,6.12,unstable"

// within is the time limit for a guest to boot and run all tests. Its processors are emulated in
// software.
const within = 20 * time.Minute

// boots is how often a guest's boot is tried, because a kernel on emulated processors sometimes
// panics at boot.
const boots = 3

func main() {
	if len(os.Args) == 2 && os.Args[1] == guestCommand {
		if err := prepareGuest(); err != nil {
			fmt.Println("guest:", err)
			os.Exit(1)
		}
		return
	}
	kernels := flag.String("kernels", series, "kernels to run, separated by commas")
	tests := flag.String("run", "", "regular expression of the tests to run, as for go test -run")
	record := flag.Bool("record", false, "write what probe says of cards to out/simcard/SERIES-probes")
	suites := flag.String("suites", "conformance lanes pods",
		"suites to run: tests of the card (conformance), of niclane on it (lanes), of pods' lanes on it (pods)")
	show := flag.Bool("show", false, "print the guests' output as it comes (make simcard-demo)")
	buildOnly := flag.Bool("build", false, "build the module and stop")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*kernels, ","), *tests, *suites, *record, *show, *buildOnly); err != nil {
		fmt.Fprintln(os.Stderr, "simcard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kernels []string, tests, suites string, record, show, buildOnly bool) error {
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(top, "test/simcard/simcard.h")); err != nil {
		return fmt.Errorf("run it from the top of the checkout: %w", err)
	}
	out := filepath.Join(top, "out/simcard")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	programs := [][]string{
		{"tools/virtme", "--help"}, // installs virtme now, because guests start without a network
		{"tools/go", "build", "-o", filepath.Join(out, "run"), "./test/simcard/run"},
		{"tools/go", "build", "-o", out + "/", "./cmd/niclane", "./cmd/niclane-bench"},
	}
	for suite := range strings.FieldsSeq(suites) {
		module, pkg := where(suite)
		programs = append(programs, []string{"tools/go", "test", "-C", module, "-c", "-o",
			filepath.Join(out, suite+".test"), "./" + pkg})
	}
	for _, args := range programs {
		if text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	var failed []string
	for _, k := range kernels {
		g := &guest{series: k, top: top, out: out, suites: suites, show: show}
		if err := g.build(ctx); err != nil {
			return fmt.Errorf("kernel %s: %w", k, err)
		}
		fmt.Printf("== %s: %s\n", k, g.release)
		if buildOnly {
			continue
		}
		if record {
			g.record = filepath.Join(out, k+"-probes")
			if err := os.MkdirAll(g.record, 0o755); err != nil {
				return err
			}
		}
		start := time.Now()
		for n := 1; ; n++ {
			err = g.boot(ctx, tests)
			if !errors.Is(err, errNoBoot) || n == boots {
				break
			}
			fmt.Printf("   boot %d of at most %d: %v\n", n, boots, err)
		}
		fmt.Printf("   %s, %s\n", time.Since(start).Round(time.Second), g.log)
		if err != nil {
			fmt.Printf("   PROBLEM %v\n", err)
			failed = append(failed, k)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(failed) > 0 {
		return errors.New("problems on " + strings.Join(failed, ", "))
	}
	return nil
}

// where returns the directory of a suite's Go module, and that of its package in the module.
// Packages that need Kubernetes' types are in a module of their own.
func where(suite string) (module, pkg string) {
	if suite == "pods" {
		return "k8s", "agent/simcard"
	}
	return ".", "test/simcard/" + suite
}

type guest struct {
	series, top, out string
	suites           string // names of suites, separated by spaces
	show             bool
	record           string // directory for recorded probes; "": none

	release string // as printed by uname -r
	image   string
	root    string // directory that contains lib/modules
	module  string // path of the module that was built, simcard.ko
	log     string
}

// fields runs a tool of tools/ for the guest's series. The tool prints one line of n fields, which
// fields returns.
func (g *guest) fields(ctx context.Context, tool string, n int) ([]string, error) {
	cmd := exec.CommandContext(ctx, tool, g.series)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", tool, g.series, err)
	}
	f := strings.Split(strings.TrimSpace(string(text)), "\t")
	if len(f) != n {
		return nil, fmt.Errorf("%s %s printed %q, want %d fields", tool, g.series, text, n)
	}
	return f, nil
}

// compile is a shell script that builds the module with the compiler that comes with the headers.
// It runs make in a mount namespace. There, the headers' directory is the root, and the module's
// source is at /module.
const compile = `
mount --bind "$1" "$2/module"
mount -t tmpfs tmpfs "$2/tmp"
mount --rbind /dev "$2/dev"
mount -t proc proc "$2/proc"
exec chroot "$2" make -s -C /lib/modules/"$3"/build M=/module modules`

// build fetches a kernel and builds the module for it.
func (g *guest) build(ctx context.Context) error {
	k, err := g.fields(ctx, "tools/kernel", 4)
	if err != nil {
		return err
	}
	h, err := g.fields(ctx, "tools/headers", 2)
	if err != nil {
		return err
	}
	if k[0] != h[0] {
		return fmt.Errorf("kernel %s, but headers of %s: run it again", k[0], h[0])
	}
	g.release, g.image, g.root = k[0], k[2], k[3]
	dir := filepath.Join(g.out, g.series)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source := filepath.Join(g.top, "test/simcard")
	for _, pattern := range []string{"*.c", "*.h", "Makefile"} {
		files, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := copyIfChanged(f, filepath.Join(dir, filepath.Base(f))); err != nil {
				return err
			}
		}
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-ec", compile, "sh", dir, h[1], g.release)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the module: %w\n%s", err, text)
	}
	g.module = filepath.Join(dir, "simcard.ko")
	return nil
}

// copyIfChanged copies a file, but leaves an equal file alone, so that make need not build again.
func copyIfChanged(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(to); err == nil && string(old) == string(text) {
		return nil
	}
	return os.WriteFile(to, text, 0o644)
}

var errNoBoot = errors.New("the guest did not come up")

// rootTag names the second export of the machine's root file system. The guest mounts it with a
// cache.
const rootTag = "cached-root"

// boot runs the tests in a guest and judges their output.
func (g *guest) boot(ctx context.Context, tests string) error {
	g.log = filepath.Join(g.out, g.series+".log")
	if err := os.WriteFile(g.log, nil, 0o644); err != nil {
		return err
	}
	console, err := os.Create(filepath.Join(g.out, g.series+".console"))
	if err != nil {
		return err
	}
	defer console.Close()
	script := filepath.Join(g.out, g.series+".sh")
	if err := os.WriteFile(script, []byte(g.script(tests)), 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// When unshare ends, the kernel kills all processes in its PID namespace.
	cmd := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child",
		"tools/virtme", "--kimg", g.image, "--mods", "auto", "--disable-kvm", "--force-9p", "--cpus", "2", "--memory",
		"2G",
		"-a", "nokaslr", "-a", "mitigations=off", "-a", "random.trust_cpu=on",
		"--rwdir", g.top, "--show-boot-console", "--script-sh", script, "--qemu-opts",
		"-accel", "tcg,thread=single", // test/matrix/host.go says why
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag="+rootTag)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		if g.show {
			follow(ctx, g.log)
		}
	}()
	err = cmd.Run()
	cancelled := ctx.Err() != nil
	cancel()
	<-seen
	if cancelled {
		return fmt.Errorf("the guest has not finished after %s", within)
	}
	text, rerr := os.ReadFile(g.log)
	if rerr != nil {
		return rerr
	}
	if len(text) == 0 {
		return errors.Join(errNoBoot, err)
	}
	if err := judge(g.release, string(text)); err != nil {
		return fmt.Errorf("%w\nthe console: %s", err, console.Name())
	}
	return nil
}

const endMark = "=== simcard: end"

// script returns the script that the guest's init runs. Modules are loaded from the user's cache
// directory, because the machine may have no /lib/modules.
func (g *guest) script(tests string) string {
	var programs strings.Builder
	for suite := range strings.FieldsSeq(g.suites) {
		module, pkg := where(suite)
		fmt.Fprintf(&programs, `cp %[1]s/%[2]s.test /var/tmp/
cd %[3]s
/var/tmp/%[2]s.test -test.v -test.timeout %[4]s -test.run '%[5]s'
rm /var/tmp/%[2]s.test
`, g.out, suite, filepath.Join(g.top, module, pkg), within-time.Minute, tests)
	}
	return fmt.Sprintf(`#!/bin/sh
exec >%[1]s 2>&1
modprobe=%[2]s/%[3]s.modprobe
printf '#!/bin/sh\nexec /sbin/modprobe -d %[4]s "$@"\n' >$modprobe
chmod 755 $modprobe
echo $modprobe >/proc/sys/kernel/modprobe
%[2]s/run %[5]s || exit
mount -t bpf bpf /sys/fs/bpf
cp %[2]s/niclane %[2]s/niclane-bench /var/tmp/
export NICLANE_RECORD=%[6]s NICLANE_SIMCARD=%[7]s NICLANE_BINARY=/var/tmp/niclane TMPDIR=/var/tmp
%[8]secho "=== simcard: kernel"
dmesg
echo "%[9]s"
`, g.log, g.out, g.series, g.root, guestCommand, g.record, g.module, programs.String(), endMark)
}

var (
	verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
	// complaint matches messages in which the kernel reports an error of its own.
	complaint = regexp.MustCompile(`WARNING:|BUG:|Oops|Call Trace|` +
		`NETDEV WATCHDOG|refcount|self-detected stall|hung_task`)
)

// maySkip lists the tests that a kernel may skip, by the first part of its release.
var maySkip = map[string][]string{
	"6.1.":  {"TestNetShaper", "TestRSSByNetlink", "TestQueueToNAPI", "TestQueueStats", "TestFlowerToQueue"},
	"6.12.": {"TestNetShaper", "TestRSSByNetlink"},
}

func judge(release, text string) error {
	var problems []error
	count := map[string]int{}
	ended := false
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, 1<<20)
	kernel := false
	for s.Scan() {
		line := s.Text()
		ended = ended || line == endMark
		kernel = kernel || line == "=== simcard: kernel"
		if kernel && complaint.MatchString(line) {
			problems = append(problems, errors.New(line))
		}
		m := verdict.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		count[m[1]]++
		switch {
		case m[1] == "FAIL":
			problems = append(problems, errors.New("failed: "+m[2]))
		case m[1] == "SKIP" && !allowed(release, m[2]):
			problems = append(problems, errors.New("skipped, but this kernel should run it: "+m[2]))
		}
	}
	if !ended {
		problems = append(problems, errors.New("the guest did not finish"))
	}
	if count["PASS"] == 0 {
		problems = append(problems, errors.New("no test passed"))
	}
	fmt.Printf("   %d passed, %d skipped, %d problems\n", count["PASS"], count["SKIP"], len(problems))
	return errors.Join(problems...)
}

func allowed(release, test string) bool {
	for prefix, tests := range maySkip {
		for _, t := range tests {
			if strings.HasPrefix(release, prefix) && test == t {
				return true
			}
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/program"
)

// guestCommand is the argument with which this command runs in a guest.
const guestCommand = "internal-guest"

// inGuest runs suites, given by name, in a guest. It prints marks around the output of each suite,
// which the host parses.
func inGuest(names string) error {
	if err := prepareGuest(); err != nil {
		return err
	}
	chosen, err := choose(names, ";")
	if err != nil {
		return err
	}
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	bin := filepath.Join(top, "out", "matrix", "bin")
	if _, err := local(filepath.Join(bin, program.Bench)); err != nil {
		return err
	}
	niclane, err := local(filepath.Join(bin, program.Niclane))
	if err != nil {
		return err
	}
	if err := os.Setenv("NICLANE_BINARY", niclane); err != nil {
		return err
	}
	for _, s := range chosen {
		fmt.Printf("%s%s\n", beginMark, s.name)
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), s.within)
		var err error
		switch s.name {
		case probeSuite:
			err = probe(ctx, niclane)
		case laneSuite:
			err = laneLife(ctx, niclane, cardQueues)
		case freeSuite:
			err = laneLife(ctx, niclane, cardQueues/2)
		case trafficSuite:
			err = traffic(ctx, niclane)
		default:
			err = runTests(ctx, top, filepath.Join(bin, s.file()), s)
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("not finished after %s", s.within)
		}
		cancel()
		outcome := "ok"
		if err != nil {
			outcome = err.Error()
		}
		fmt.Printf("\n%s%s in %.1fs: %s\n", endMark, s.name, time.Since(start).Seconds(),
			strings.ReplaceAll(outcome, "\n", "; "))
	}
	fmt.Printf("%s%s\n", beginMark, kernelSection)
	out, err := exec.Command("dmesg").CombinedOutput()
	fmt.Printf("%s\n%s%s in 0s: ok\n", out, endMark, kernelSection)
	if err != nil {
		return err
	}
	fmt.Println(doneMark)
	return nil
}

// prepareGuest adds what Debian sets up at boot and virtme-ng's init does not: the BPF file system,
// usable control groups, and the card's driver.
func prepareGuest() error {
	const cachedRoot = "/run/cached-root"
	if err := os.Mkdir(cachedRoot, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		source, dir, kind string
		flags             uintptr
		data              string
	}{
		{"bpf", "/sys/fs/bpf", "bpf", 0, ""},
		// virtme mounts its root without a cache. The guest would read a program from the host again at
		// each start, which takes ten times as long.
		{rootTag, cachedRoot, "9p", unix.MS_RDONLY,
			"version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"},
		{cachedRoot + "/usr", "/usr", "", unix.MS_BIND, ""},
	} {
		if err := unix.Mount(m.source, m.dir, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	// As systemd does, enable these controllers for the groups below the root.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpuset +cpu +memory +pids"),
		0); err != nil {
		return err
	}
	modprobe, err := os.ReadFile("/proc/sys/kernel/modprobe")
	if err != nil {
		return err
	}
	// udev normally does this: load the card's driver and create vhost's device node.
	for _, module := range []string{"virtio_net", "vhost_net"} {
		if out, err := exec.Command(strings.TrimSpace(string(modprobe)), module).CombinedOutput(); err != nil {
			return fmt.Errorf("modprobe %s: %w: %s", module, err, out)
		}
	}
	// Tells tests that they may change settings of the whole machine.
	if err := os.Setenv("NICLANE_GUEST", "1"); err != nil {
		return err
	}
	return os.Setenv("TMPDIR", "/var/tmp") // because /tmp is the host's
}

// runTests runs the compiled tests of a package as go test does, in the package's directory.
func runTests(ctx context.Context, top, program string, s suite) error {
	args := []string{"-test.v", "-test.timeout", s.within.String()}
	if s.run != "" {
		args = append(args, "-test.run", s.run)
	}
	if s.skip != "" {
		args = append(args, "-test.skip", s.skip)
	}
	if s.bench != "" {
		args = append(args, "-test.bench", s.bench, "-test.benchtime", "1x")
	}
	program, err := local(program)
	if err != nil {
		return err
	}
	defer os.Remove(program)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(top, s.path())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// local copies a program into the guest's memory, because tests often start themselves.
func local(program string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	own := filepath.Join(os.TempDir(), filepath.Base(program))
	return own, os.WriteFile(own, text, 0o755)
}

// say runs a command. It prints the command and its output, and returns its standard output.
func say(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	fmt.Printf("$ %s\n%s%s", strings.Join(argv, " "), stdout.String(), stderr.String())
	if err != nil {
		fmt.Printf("(%v)\n", err)
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), err
}

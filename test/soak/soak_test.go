// SPDX-License-Identifier: Apache-2.0

// Package soak runs every long-lived process of niclane under load, with forced garbage
// collections, and compares descriptors, memory and answers over time. go test takes seconds, make
// soak a given time.
package soak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/soak"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A bed has the processes of the test, in the network namespace of the test's thread.
type bed struct {
	*testing.T
	dir     string
	niclane string
	sender  int
	frame   []byte
	ends    []func() // run in reverse order
}

func TestSoak(t *testing.T) {
	vethtest.NeedRoot(t)
	length := soak.Length(t, 6*time.Second)
	vethtest.HoldIOUring(t)
	r, err := iouring.New(time.Millisecond)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skip(err) // needs Linux 6.13 and kernel.io_uring_disabled = 0
	}
	must.Do(t, err)
	r.Close()
	vethtest.Run(t, 4, func(t *testing.T) {
		b := &bed{T: t, dir: t.TempDir()}
		b.build()
		b.network()
		defer func() { // b.Fatal ends only this function, not the test
			for i := range b.ends {
				b.ends[len(b.ends)-1-i]()
			}
		}()
		processes := append(b.watch(), b.keeper(), b.guard(), b.serve())
		if t.Failed() {
			return
		}
		send := func() {
			if _, err := unix.Write(b.sender, b.frame); err != nil && err != unix.ENOBUFS && err != unix.EAGAIN {
				t.Fatal(err)
			}
		}
		n := 0
		soak.Run(t, length, processes, func() {
			// The watch is notified by the kernel of each of these changes.
			vethtest.Command(t, "ip addr "+[]string{"add", "del"}[n%2]+" 192.0.2.1/32 dev "+vethtest.Dev)
			n++
			for range 10 {
				send()
			}
		}, send)
	})
}

// build builds the commands as make does, but with code that collects garbage all the time.
func (b *bed) build() {
	b.niclane = filepath.Join(b.dir, "niclane")
	for _, name := range []string{program.Niclane, program.Bench} {
		dir := "cmd/" + name
		cmd := exec.Command("go", "build", "-buildvcs=false", soak.Overlay(b.T, "../..", dir), "-o",
			filepath.Join(b.dir, name), "../../"+dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}

// network turns on NAPI on the veth and opens the sender at the other end.
func (b *bed) network() {
	et, err := ethtool.Open()
	must.Do(b, err)
	defer et.Close()
	must.Do(b, et.SetFeature(device.Feature{Dev: vethtest.Dev, Name: "rx-gro", On: true}))
	vethtest.Command(b, "ip link set lo up")
	b.sender, b.frame = packets(b.T)
	b.ends = append(b.ends, func() { unix.Close(b.sender) })
}

// command returns a niclane command. Each host of the bed has its own state and run directories.
// The guard process needs a host of its own: while it waits, no other change is allowed.
func (b *bed) command(host string, args ...string) *exec.Cmd {
	return exec.Command(b.niclane, append([]string{"--state-dir", filepath.Join(b.dir, host, "state"), "--run-dir",
		filepath.Join(b.dir, host, "run")}, args...)...)
}

func (b *bed) do(host string, args ...string) string {
	out, err := b.command(host, args...).CombinedOutput()
	if err != nil {
		b.Errorf("niclane %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// begin starts a process and writes its output to a log. The process ends with the test.
func (b *bed) begin(cmd *exec.Cmd) *exec.Cmd {
	log, err := os.Create(filepath.Join(b.dir, "log."+strconv.Itoa(len(b.ends))))
	must.Do(b, err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	must.Do(b, cmd.Start())
	b.ends = append(b.ends, func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); b.Failed() && err == nil {
			b.Logf("%s:\n%s", strings.Join(cmd.Args, " "), text[max(0, len(text)-2000):])
		}
		log.Close()
	})
	return cmd
}

// eventually calls f until it returns no error: the process is ready.
func (b *bed) eventually(what string, f func() error) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			b.Fatalf("within a minute not: %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bed) lanes(host, dev, more string) string {
	must.Do(b, os.MkdirAll(filepath.Join(b.dir, host), 0o700))
	file := filepath.Join(b.dir, host, "lanes.yaml")
	text := fmt.Sprintf("version: 1\nglobals: {dev: %s, link-rate: 1gbit%s}\nlanes: {web: {queues: 2, guarantee: "+
		"20%%, cpus: 1, ports: [8080]}}\n", dev, more)
	must.Do(b, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// BenchmarkMember measures how long it takes to add the thousandth member to a lane, on a device
// that cannot steer. It runs in one process, like a service. The time includes reading the file,
// the machine and the owned objects, planning, the journal, the steps and reading back.
// BenchmarkMember of package test/bench measures the same with the command niclane.
func BenchmarkMember(b *testing.B) {
	vethtest.Run(b, 4, func(b *testing.B) {
		dir := b.TempDir()
		// The run directory is in memory, like /run on a host with systemd. The journal is on disk.
		memory, err := os.MkdirTemp("/dev/shm", "niclane-bench-")
		must.Do(b, err)
		defer os.RemoveAll(memory)
		a := &app{cli.App{Stdout: io.Discard, Stderr: os.Stderr, StateDir: filepath.Join(dir, "state"),
			RunDir: filepath.Join(memory, "run")}}
		file := filepath.Join(dir, "lanes.yaml")
		members := func(n int) time.Duration {
			text := fmt.Sprintf("version: 1\nglobals:\n  dev: %s\nlanes:\n  crowd:\n    queues: 1\n    cpus: 1\n    "+
				"addrs: [10.0.0.1]\n    ports: [20001-%d]\n", vethtest.Dev, 20000+n)
			must.Do(b, os.WriteFile(file, []byte(text), 0o600))
			began := time.Now()
			r, err := readRequest(file)
			must.Do(b, err)
			must.Do(b, a.apply(b.Context(), r, 0))
			return time.Since(began)
		}
		members(999)
		var add time.Duration
		n := 0
		for b.Loop() {
			add += members(1000)
			n++
			members(999)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(add.Microseconds())/1000/float64(n), "ms-add")
	})
}

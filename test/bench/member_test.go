// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

// BenchmarkMember adds the thousandth member to a lane, with niclane apply, on a device that cannot
// steer. It measures the whole process, which first reads all members and journals its objects.
// BenchmarkAdd of package internal/kernel/bpf measures only the kernel's part.
func BenchmarkMember(b *testing.B) {
	vethtest.NeedRoot(b)
	dir := b.TempDir()
	memory, err := os.MkdirTemp("/dev/shm", "niclane-bench-") // in memory, like /run
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(memory) })
	niclane := filepath.Join(dir, "niclane")
	build(b, niclane)
	pair(b, 4)
	config := filepath.Join(dir, "lanes.yaml")
	members := func(n int) {
		write(b, config, fmt.Sprintf("version: 1\nglobals:\n  dev: %s\nlanes:\n  crowd:\n    queues: 1\n    cpus: "+
			"1\n    addrs: [10.0.0.1]\n    ports: [%d-%d]\n",
			card0, firstPort, firstPort+n-1))
	}
	apply := func(verb ...string) cost {
		return timed(b, inNetns(append([]string{niclane, "--state-dir", filepath.Join(dir, "state"), "--run-dir",
			filepath.Join(memory, "run")}, verb...)...))
	}
	members(999)
	apply("apply", config)
	for b.Loop() {
		var took, idle costs
		for range rounds {
			members(1000)
			took = append(took, apply("apply", config))
			idle = append(idle, apply("apply", config)) // an apply that changes nothing
			members(999)
			apply("apply", config)
		}
		b.ReportMetric(0, "ns/op")
		took.report(b, "add")
		idle.report(b, "nothing-to-do")
	}
	apply("rollback")
}

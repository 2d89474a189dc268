// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

var restWindow = flag.Duration("rest", 30*time.Second, "how long the agent at rest is looked at")

// BenchmarkRest measures the resident memory and the CPU time of an idle agent, with 110 pods in a
// shared lane. The agent is built as for the container image.
func BenchmarkRest(b *testing.B) {
	pid := startAgent(b, buildAgent(b), inLanes).Pid
	settle(b, pid)
	for b.Loop() {
		before := spent(b, pid)
		time.Sleep(*restWindow)
		b.ReportMetric((spent(b, pid)-before)/restWindow.Seconds()*100, "%CPU")
	}
	b.ReportMetric(0, "ns/op") // hides the time per iteration, which has no meaning here
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"VmRSS", "RssAnon", "RssFile"} {
		kb, err := strconv.ParseFloat(regexp.MustCompile(name + `:\s*(\d+) kB`).FindStringSubmatch(string(status))[1],
			64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(kb/1024, name+"-MiB")
	}
}

// settle waits until the agent is idle: until it takes less than 1% of a CPU in each of three
// consecutive seconds.
func settle(b *testing.B, pid int) {
	last, quiet := spent(b, pid), 0
	for deadline := time.Now().Add(time.Minute); quiet < 3; {
		if time.Now().After(deadline) {
			b.Fatalf("the agent does not come to rest: it took more than a hundredth of a processor within the "+
				"last 3 s, %.2f s since its start", last)
		}
		time.Sleep(time.Second)
		now := spent(b, pid)
		if quiet++; now-last > 0.01 {
			quiet = 0
		}
		last = now
	}
}

// spent returns the CPU time of a process's threads, in seconds.
func spent(b *testing.B, pid int) (sum float64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		b.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue // the thread has ended meanwhile
		}
		var ns float64
		if _, serr := fmt.Sscan(string(text), &ns); err != nil || serr != nil {
			b.Fatal(err, serr)
		}
		sum += ns / 1e9
	}
	return sum
}

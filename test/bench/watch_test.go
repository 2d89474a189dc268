// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// restFor is how long the idle watch is measured. The time includes two checks without an event.
// NICLANE_WATCH_REST sets another time, such as 10m.
const restFor = 70 * time.Second

// watchedLab is a lab with a watched lane.
type watchedLab struct {
	b      *testing.B
	dir    string
	name   string
	lines  chan watchLine
	ended  chan error
	pid    int
	binary string
}

// watchLine is an event from niclane --json watch, with the time when it was read.
type watchLine struct {
	Kind, Device, Key, Text string
	AfterNs                 time.Duration
	at                      time.Time
}

// Lanes files: a kernel thread polls the first lane, a process of niclane the second.
const (
	lane = "version: 1\nglobals:\n  dev: lane0\nlanes:\n  memcached:\n    queues: 2\n    guarantee: 20%\n    " +
		"ports: [11211]\n    cpus: 1\n    pollers: 1\n    poller: "
	threadLane = lane + "thread\n"
	pollerLane = lane + "busy\n"
)

// startWatch starts a watch of a file's lanes in a new lab.
func startWatch(b *testing.B, lanes string) *watchedLab {
	b.Helper()
	vethtest.NeedRoot(b)
	w := &watchedLab{b: b, dir: b.TempDir(), name: fmt.Sprintf("nlwatch-%d", os.Getpid()),
		lines: make(chan watchLine, 256), ended: make(chan error, 1)}
	w.binary = filepath.Join(w.dir, "niclane")
	build(b, w.binary)
	run(b, exec.Command(w.binary, "lab", "--name", w.name, "up"))
	b.Cleanup(func() { run(b, exec.Command(w.binary, "lab", "--name", w.name, "down")) })
	write(b, filepath.Join(w.dir, "lanes.yaml"), lanes)
	pidFile := filepath.Join(w.dir, "pid")
	cmd := w.onSUT("sh", "-c", `echo $$ >`+pidFile+`; exec "$@"`, "sh", w.binary, "--json", "--state-dir",
		w.dir+"/state", "--run-dir", w.dir+"/run", "watch", w.dir+"/lanes.yaml")
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = os.Stderr
		err = cmd.Start()
	}
	must.Do(b, err)
	go w.read(out, cmd)
	w.until("begun", "")
	text, err := os.ReadFile(pidFile)
	if err == nil {
		w.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	must.Do(b, err)
	b.Cleanup(func() {
		p, err := os.FindProcess(w.pid)
		if err == nil {
			err = p.Signal(os.Interrupt)
		}
		if err != nil {
			b.Error(err)
		}
		if err := <-w.ended; err != nil {
			b.Error(err)
		}
		run(b, w.onSUT(w.binary, "--state-dir", w.dir+"/state", "--run-dir", w.dir+"/run", "rollback"))
	})
	return w
}

func (w *watchedLab) read(out io.Reader, cmd *exec.Cmd) {
	s := bufio.NewScanner(out)
	for s.Scan() {
		var l watchLine
		if err := json.Unmarshal(s.Bytes(), &l); err == nil {
			l.at = time.Now()
			w.lines <- l
		}
	}
	close(w.lines)
	w.ended <- cmd.Wait()
}

func (w *watchedLab) onSUT(args ...string) *exec.Cmd {
	return exec.Command(w.binary, append([]string{"lab", "--name", w.name, "exec", "sut", "--"}, args...)...)
}

// until waits for an event of this kind about this object.
func (w *watchedLab) until(kind, key string) watchLine {
	w.b.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case l, ok := <-w.lines:
			if !ok {
				w.b.Fatalf("the watch has ended without %s %s", kind, key)
			}
			if l.Kind == "failed" || l.Kind == "left" {
				w.b.Logf("%s %s: %s", l.Kind, l.Key, l.Text)
			}
			if l.Kind == kind && strings.HasPrefix(l.Key, key) {
				return l
			}
		case <-timeout:
			w.b.Fatalf("no %s %s within a minute", kind, key)
		}
	}
}

// BenchmarkWatchRest reports which share of one processor an idle watch uses (cpu-%), and its peak
// memory (MiB). The share comes from cpu.stat of the watch's own control group. The goal is 0.1 %.
func BenchmarkWatchRest(b *testing.B) {
	groups, err := cgroup.Find(nil)
	if err != nil || groups.V2 == "" {
		b.Skipf("no unified hierarchy: %v", err)
	}
	length := restFor
	if s := os.Getenv("NICLANE_WATCH_REST"); s != "" {
		if length, err = time.ParseDuration(s); err != nil {
			b.Fatal(err)
		}
	}
	w := startWatch(b, threadLane)
	group := filepath.Join(groups.V2, w.name)
	must.Do(b, os.Mkdir(group, 0o755))
	b.Cleanup(func() {
		// Clean-ups run in reverse order, so the process has left the group already.
		if err := os.Remove(group); err != nil {
			b.Error(err)
		}
	})
	write(b, filepath.Join(group, "cgroup.procs"), strconv.Itoa(w.pid))
	b.Cleanup(func() { write(b, filepath.Join(groups.V2, "cgroup.procs"), strconv.Itoa(w.pid)) })
	for b.Loop() {
		before, began := usage(b, group), time.Now()
		<-time.After(length) // the time that is measured
		took := time.Since(began)
		b.ReportMetric(100*float64(usage(b, group)-before)*1e3/float64(took.Nanoseconds()), "cpu-%")
	}
	b.ReportMetric(float64(peak(b, w.pid))/1024, "MiB")
	b.ReportMetric(0, "ns/op")
}

// usage returns the processor time of a control group, in µs.
func usage(b *testing.B, group string) int64 {
	b.Helper()
	return field(b, filepath.Join(group, "cpu.stat"), "usage_usec")
}

// peak returns the peak memory of a process, in KiB.
func peak(b *testing.B, pid int) int64 {
	b.Helper()
	return field(b, fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
}

// field returns the number that follows word at the start of a line of a file.
func field(b *testing.B, path, word string) int64 {
	b.Helper()
	text, err := os.ReadFile(path)
	must.Do(b, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == word {
			n, err := strconv.ParseInt(f[1], 10, 64)
			must.Do(b, err)
			return n
		}
	}
	b.Fatalf("%s: no %s", path, word)
	return 0
}

// BenchmarkWatchRecovery takes the link down and up. It reports the median and longest time, in ms,
// from the command that brings the link up until the watch has restored the polling of the lane's
// NAPIs. told-ms is the part of this time that begins with the first notification, as the watch
// reports it. qdisc-ms is the time to restore a root qdisc that another program deletes. The goal
// is one second.
func BenchmarkWatchRecovery(b *testing.B) {
	w := startWatch(b, threadLane)
	var up, told, qdisc []time.Duration
	for b.Loop() {
		for range 8 {
			run(b, w.onSUT("ip", "link", "set", "lane0", "down"))
			w.until("waiting", "")
			began := time.Now()
			run(b, w.onSUT("ip", "link", "set", "lane0", "up"))
			l := w.until("repaired", "napi/lane0/7")
			up, told = append(up, l.at.Sub(began)), append(told, l.AfterNs)
		}
		began := time.Now()
		run(b, w.onSUT("tc", "qdisc", "del", "dev", "lane0", "root"))
		qdisc = append(qdisc, w.until("repaired", "qdisc/lane0/root").at.Sub(began))
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	b.ReportMetric(ms(median(up)), "ms")
	b.ReportMetric(ms(slices.Max(up)), "longest-ms")
	b.ReportMetric(ms(median(told)), "told-ms")
	b.ReportMetric(ms(median(qdisc)), "qdisc-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWatchPoller kills the poller of a lane and reports the time until a new one polls, in
// ms. The goal is one second. It kills only one poller, because the watch delays each further
// repair.
func BenchmarkWatchPoller(b *testing.B) {
	w := startWatch(b, pollerLane)
	for b.Loop() {
		out, err := w.onSUT("sh", "-c", w.binary+` --run-dir `+w.dir+
			`/run --json probe lane0 | sed -n 's/.*"thread": \([0-9][0-9]*\),/\1/p'`).Output()
		must.Do(b, err)
		began := time.Now()
		run(b, exec.Command("kill", "-KILL", strings.TrimSpace(string(out))))
		took := w.until("repaired", "poller/lane0/6").at.Sub(began)
		b.ReportMetric(float64(took.Microseconds())/1e3, "ms")
	}
	b.ReportMetric(0, "ns/op")
}

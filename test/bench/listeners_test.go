// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/sockiter"
	"github.com/niclane/niclane/internal/vethtest"
)

// BenchmarkListeners has nginx with two workers, each on a processor with a
// receive queue of its lane: how evenly connections are spread over workers (the
// most of one over the mean), and how many are on the processor that their
// packets come by, by the kernel's hash and with niclane attach --listeners.
// How evenly the card spreads them over its queues is the same in both: chance.
func BenchmarkListeners(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	for _, tool := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skip("no " + tool + " here")
		}
	}
	for _, conns := range []int{16, 128} {
		b.Run(fmt.Sprintf("%d connections", conns), func(b *testing.B) {
			l := newListeners(b)
			for b.Loop() {
				sum := map[string]*spread{"hash": {}, "niclane": {}}
				for range rounds {
					l.count(conns, sum["hash"])
					l.niclane("attach", "--lane", "web", "--listeners", "--pid", strconv.Itoa(l.main))
					l.count(conns, sum["niclane"])
					l.niclane("detach", "--pid", strconv.Itoa(l.main))
				}
				b.ReportMetric(0, "ns/op")
				for name, s := range sum {
					b.ReportMetric(s.uneven/rounds, name+"-max/mean")
					b.ReportMetric(100*float64(s.near)/float64(s.all), name+"-%-on-their-processor")
				}
			}
		})
	}
}

// spread is how connections were spread.
type spread struct {
	uneven    float64 // most of a worker over the mean, summed over rounds
	near, all int     // on the processor of their worker
}

type listeners struct {
	*testing.B
	dir, bin, lab string
	main          int
}

const webPort = 8080

func newListeners(b *testing.B) *listeners {
	b.Helper()
	l := &listeners{B: b, dir: b.TempDir(), lab: fmt.Sprintf("bench-%d", os.Getpid())}
	l.bin = filepath.Join(l.dir, "niclane")
	build(b, l.bin)
	run(b, exec.Command(l.bin, "lab", "--name", l.lab, "up", "--queues", "4"))
	b.Cleanup(func() { run(b, exec.Command(l.bin, "lab", "--name", l.lab, "down")) })
	write(b, l.dir+"/lanes.yaml", fmt.Sprintf("version: 1\nglobals:\n  dev: lane0\nlanes:\n  web:\n    queues: 2\n    cpus: 0-1\n    ports: [%d]\n    addrs: [10.77.0.1]\n", webPort))
	write(b, l.dir+"/nginx.conf", fmt.Sprintf(`daemon off;
worker_processes 2;
worker_cpu_affinity 01 10;
pid %[1]s/pid;
error_log %[1]s/error;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server { listen 10.77.0.1:%[2]d reuseport; location / { return 200 "ok\n"; } }
}
`, l.dir, webPort))
	l.niclane("apply", l.dir+"/lanes.yaml")
	web := l.on("sut", "nginx", "-c", l.dir+"/nginx.conf", "-e", l.dir+"/error")
	if err := web.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = unix.Kill(l.main, unix.SIGTERM)
		_ = web.Wait()
	})
	l.until("nginx has two workers", func() bool {
		text, err := os.ReadFile(l.dir + "/pid")
		if err == nil {
			l.main, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return len(l.workers()) == 2
	})
	return l
}

func (l *listeners) on(host string, argv ...string) *exec.Cmd {
	return exec.Command(l.bin, append([]string{"lab", "--name", l.lab, "exec", host, "--"}, argv...)...)
}

func (l *listeners) niclane(args ...string) {
	l.Helper()
	run(l.B, l.on("sut", append([]string{l.bin, "--state-dir", l.dir + "/state", "--run-dir", l.dir + "/run"}, args...)...))
}

func (l *listeners) until(what string, cond func() bool) {
	l.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.Fatalf("never: %s", what)
		}
	}
}

// workers are nginx's processes, with the inodes of their sockets.
func (l *listeners) workers() map[int]map[uint64]bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", l.main))
	if err != nil {
		return nil
	}
	out := map[int]map[uint64]bool{}
	for _, f := range strings.Fields(string(text)) {
		pid, _ := strconv.Atoi(f)
		out[pid] = map[uint64]bool{}
		entries, _ := os.ReadDir("/proc/" + f + "/fd")
		for _, e := range entries {
			target, _ := os.Readlink("/proc/" + f + "/fd/" + e.Name())
			var inode uint64
			if n, _ := fmt.Sscanf(target, "socket:[%d]", &inode); n == 1 {
				out[pid][inode] = true
			}
		}
	}
	return out
}

// sockets are those of the server's connections.
func (l *listeners) sockets() (all []sockiter.Socket) {
	l.Helper()
	var err error
	vethtest.OnOwnThread(func() {
		var ns int
		if ns, err = unix.Open("/run/netns/"+l.lab+"-sut", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		defer unix.Close(ns)
		if err = unix.Setns(ns, unix.CLONE_NEWNET); err == nil {
			all, err = sockiter.List(sockiter.Filter{Ports: []uint16{webPort}, Connections: true})
		}
	})
	if err != nil {
		l.Fatal(err)
	}
	return all
}

// count makes connections, has requests run over them, and looks where they are.
func (l *listeners) count(conns int, s *spread) {
	l.Helper()
	load := l.on("client", "wrk", "-t", "1", "-c", strconv.Itoa(conns), "-d", "1s", fmt.Sprintf("http://10.77.0.1:%d/", webPort))
	if err := load.Start(); err != nil {
		l.Fatal(err)
	}
	var by map[int]int
	near := 0
	l.until("all connections are accepted", func() bool {
		by, near = map[int]int{}, 0
		workers, total := l.workers(), 0
		for _, x := range l.sockets() {
			for pid, inodes := range workers {
				if x.Inode == 0 || !inodes[x.Inode] {
					continue
				}
				total++
				by[pid]++
				var set unix.CPUSet
				if unix.SchedGetaffinity(pid, &set) == nil && set.Count() == 1 && x.CPU >= 0 && set.IsSet(x.CPU) {
					near++
				}
			}
		}
		return total == conns
	})
	if err := load.Wait(); err != nil {
		l.Fatal(err)
	}
	most := 0
	for _, n := range by {
		most = max(most, n)
	}
	s.uneven += float64(most) / (float64(conns) / 2)
	s.near += near
	s.all += conns
}

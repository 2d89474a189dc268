// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// nginx is Debian's nginx, without changes.
type nginx struct {
	*bed
	dir  string
	main int
}

func (b *bed) nginx(workers int, affinity string) *nginx {
	b.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		b.Skip("no nginx here")
	}
	n := &nginx{bed: b, dir: b.TempDir()}
	n.configure(workers, affinity)
	n.main = b.start(path, "-c", n.dir+"/nginx.conf", "-e", n.dir+"/error").Process.Pid
	return n
}

func (n *nginx) configure(workers int, affinity string) {
	n.Helper()
	text := fmt.Sprintf(`daemon off;
worker_processes %d;
%s
pid %[3]s/pid;
error_log %[3]s/error;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path %[3]s; proxy_temp_path %[3]s; fastcgi_temp_path %[3]s; uwsgi_temp_path %[3]s; scgi_temp_path %[3]s;
  server { listen 10.77.0.1:%[4]d reuseport backlog=1024; location / { return 200 "$pid\n"; } }
}
`, workers, affinity, n.dir, port)
	must.Do(n, os.WriteFile(filepath.Join(n.dir, "nginx.conf"), []byte(text), 0o644))
}

// reload makes nginx start new workers. It waits until the old workers have ended.
func (n *nginx) reload(workers int, affinity string) {
	n.Helper()
	old := n.workers()
	n.configure(workers, affinity)
	must.Do(n, unix.Kill(n.main, unix.SIGHUP))
	n.until("nginx has reloaded", func() bool {
		now := n.workers()
		for _, pid := range now {
			for _, o := range old {
				if pid == o {
					return false
				}
			}
		}
		return len(now) == workers
	})
}

// workers returns the PIDs of the master process's children.
func (n *nginx) workers() []int {
	n.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.main))
	must.Do(n, err)
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		must.Do(n, err)
		pids = append(pids, pid)
	}
	return pids
}

const auto = "worker_cpu_affinity 01 10;"

// aligned is bed.aligned for nginx, whose answers are the worker's PID.
func (n *nginx) aligned(conns int) (on int, by map[string]int) {
	n.Helper()
	return n.bed.aligned(conns, func(pid string) int { return processor(n.TB, pid) })
}

// aligned opens connections. on is how many of them were answered on the processor on which they
// arrived. by is how many each server answered. where returns a server's processor.
func (n *bed) aligned(conns int, where func(who string) int) (on int, by map[string]int) {
	n.Helper()
	by = map[string]int{}
	who := map[uint16]string{} // server, by the client's port
	var open []net.Conn
	labtest.OnHost(n.TB, n.lab, lab.Client, func(t testing.TB) {
		for range conns {
			pid, err := ask(&open)
			if err != nil {
				t.Error(err)
				return
			}
			by[pid]++
			who[uint16(open[len(open)-1].LocalAddr().(*net.TCPAddr).Port)] = pid
		}
	})
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	socks, err := sockiter.List(sockiter.Filter{Ports: []uint16{port}, Connections: true})
	must.Do(n, err)
	for _, s := range socks {
		pid, ok := who[s.Remote.Port()]
		if !ok || s.Local.Port() != port {
			continue
		}
		if s.NAPI == 0 {
			n.Errorf("connection %s has no NAPI", s.Remote)
		}
		if s.CPU == where(pid) {
			on++
		}
		delete(who, s.Remote.Port())
	}
	if len(who) > 0 {
		n.Errorf("%d of %d connections were not listed", len(who), conns)
	}
	return on, by
}

// processor returns the only processor on which a process may run; -1 if it may run on several.
func processor(t testing.TB, pid string) int {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("answer %q", pid)
	}
	var set unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(id, &set))
	if set.Count() != 1 {
		return -1
	}
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	return -1
}

func TestNginxAligned(t *testing.T) {
	onBed(t, func(b *bed) {
		n := b.nginx(2, auto)
		const conns = 100
		hashed, _ := n.aligned(conns)
		r, err := app.Attach(b.lane, b.listening(app.Listeners{}), app.Target{PID: n.main})
		if err != nil {
			t.Error(err)
			return
		}
		b.led(2)
		on, by := n.aligned(conns)
		if on != conns || len(by) != 2 {
			t.Errorf("%d of %d connections were answered on the processor that they came by, want all; by worker: "+
				"%v\n%s", on, conns, by, strings.Join(r.Notes, "\n"))
		}
		t.Logf("aligned: %d of %d connections, by the kernel's hash %d; by worker %v", on, conns, hashed, by)

		// All local traffic comes from one processor. Even so, it must not all go to one worker.
		local := b.local(conns)
		for pid, k := range local {
			if k < conns/5 {
				t.Errorf("of %d local connections worker %s got %d", conns, pid, k)
			}
		}
		if len(local) != 2 {
			t.Errorf("local connections by worker: %v", local)
		}

		if _, err := app.Detach(b.options.RunDir, app.Choice{PID: n.main}); err != nil {
			t.Error(err)
		}
		if on, _ := n.aligned(conns); on == conns {
			t.Errorf("detached: still %d of %d aligned", on, conns)
		}
	})
}

// local opens connections from the system under test itself, all on one processor.
func (b *bed) local(n int) map[string]int {
	b.Helper()
	by := map[string]int{}
	labtest.OnHost(b.TB, b.lab, lab.SUT, func(t testing.TB) {
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(1)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
		for range n {
			pid, err := ask(nil)
			if err != nil {
				t.Error(err)
				return
			}
			by[pid]++
		}
	})
	return by
}

// TestNginxPinned tests workers that have no affinity. niclane must pin each of their threads to a
// processor, and undo this when it detaches.
func TestNginxPinned(t *testing.T) {
	onBed(t, func(b *bed) {
		n := b.nginx(2, "")
		r, err := app.Attach(b.lane, b.listening(app.Listeners{}), app.Target{PID: n.main})
		if err != nil {
			t.Error(err)
			return
		}
		if text := strings.Join(r.Notes, "\n"); !strings.Contains(text, "left to the kernel") ||
			!strings.Contains(text, "may run on 2 processors") {
			t.Errorf("with workers anywhere: %s", text)
		}
		if _, err := app.Detach(b.options.RunDir, app.Choice{PID: n.main}); err != nil {
			t.Error(err)
		}
		if _, err := app.Attach(b.lane, b.listening(app.Listeners{Pin: true}), app.Target{PID: n.main}); err != nil {
			t.Error(err)
			return
		}
		b.led(2)
		if on, by := n.aligned(50); on != 50 || len(by) != 2 {
			t.Errorf("%d of 50 aligned, by worker %v", on, by)
		}
		n.reload(2, "")
		b.led(2)
		b.until("new workers are pinned", func() bool {
			for _, pid := range n.workers() {
				if processor(b.TB, strconv.Itoa(pid)) < 0 {
					return false
				}
			}
			return true
		})
		if _, err := app.Detach(b.options.RunDir, app.Choice{PID: n.main}); err != nil {
			t.Error(err)
		}
		for _, pid := range n.workers() {
			if cpu := processor(b.TB, strconv.Itoa(pid)); cpu >= 0 {
				t.Errorf("detached: worker %d is still kept to processor %d", pid, cpu)
			}
		}
	})
}

// TestNginxLosesNothing attaches, reloads, kills niclane and detaches, all under load.
func TestNginxLosesNothing(t *testing.T) {
	onBed(t, func(b *bed) {
		n := b.nginx(2, auto)
		load := b.load()
		load.more(50)
		for range 3 {
			if _, err := app.Attach(b.lane, b.listening(app.Listeners{}), app.Target{PID: n.main}); err != nil {
				t.Error(err)
				break
			}
			b.led(2)
			load.more(50)
			n.reload(2, auto) // other processes use the same sockets
			load.more(50)
			n.reload(3, "worker_cpu_affinity 01 10 01;") // a new listener
			b.led(3)
			load.more(50)
			load.closing(1, func() { n.reload(2, auto) }) // one listener closes, while connections wait in it
			b.led(2)
			load.more(50)
			// niclane is killed, but its eBPF program continues to work, even when nginx is reloaded.
			_, r := b.report()
			if err := unix.Kill(r.Keeper.PID, unix.SIGKILL); err != nil {
				t.Error(err)
			}
			n.reload(3, "worker_cpu_affinity 01 10 01;")
			load.more(50)
			load.closing(1, func() { n.reload(2, auto) })
			load.more(50)
			if _, err := app.Detach(b.options.RunDir, app.Choice{PID: n.main}); err != nil {
				t.Error(err)
			}
			load.more(50)
		}
		load.end()
	})
}

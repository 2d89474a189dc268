// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/clitest"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
)

// nodeServer is the name under which this test binary acts as the server of TestSplit. An instance
// of it runs on each node, and any of its threads accepts connections. It answers with its node,
// and with the processor on which the connection's packets arrived.
const nodeServer = "niclane-test-node-server"

func serveNode() {
	if err := listenOnNode(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func listenOnNode(addr string) error {
	c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET,
				unix.SO_REUSEPORT, 1)
		}), err)
	}}
	c.SetMultipathTCP(false)
	l, err := c.Listen(context.Background(), "tcp4", addr)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			// The request arrives on the same processor as the connection's other packets.
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				return
			}
			raw, err := conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				return
			}
			arrived := -1
			_ = raw.Control(func(fd uintptr) {
				arrived,
					_ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
			})
			fmt.Fprintf(conn, "%s %d %d\n", os.Getenv("NICLANE_NODE"), arrived, os.Getpid())
		}()
	}
}

type splitBed struct{ *clitest.Bed }

// TestSplit runs one instance per NUMA node. If the machine does not have two nodes, the command
// sees two simulated ones, one of them without memory. Processors, queues and connections are real
// in both cases.
func TestSplit(t *testing.T) {
	b := splitBed{clitest.NewBed(t)}
	b.Raise("split")
	self, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	for _, name := range []string{"niclane", nodeServer} {
		must.Do(t, os.WriteFile(filepath.Join(b.Bin, name), self, 0o755))
	}
	b.on(lab.SUT, "ip", "addr", "add", "10.77.0.101/24", "dev", "lane0")
	// The lab's hosts have permanent neighbour entries: "ADDR dev DEV lladdr MAC ...".
	b.on(lab.Client, "sh", "-ec", `set -- $(ip neigh show 10.77.0.1); ip neigh replace 10.77.0.101 dev "$3" lladdr "$5" nud permanent`)
	// The lab has no interrupts that could keep a queue's polls on a processor. Threads do.
	lanes := fmt.Sprintf("version: 1\nglobals: {dev: lane0}\nlanes:\n  web:\n    queues: 1\n    cpus: %s\n    "+
		"poller: thread\n    ports: [8080]\n", device.FormatCPUList(b.CPUs))
	b.Write("lanes.yaml", lanes+"    addrs: [10.77.0.1]\n")
	b.Write("shards.yaml", lanes+"    addrs: [10.77.0.1, 10.77.0.101]\n")
	t.Run("duplicate", func(t *testing.T) { splitBed{b.In(t)}.duplicate() })
	t.Run("shard", func(t *testing.T) { splitBed{b.In(t)}.shard() })
}

// command returns a command in the system under test. The command sees two NUMA nodes, real or
// simulated.
func (b splitBed) command(argv ...string) *exec.Cmd {
	b.Helper()
	return b.CommandOn(lab.SUT, b.Shown(argv...)...)
}

func (b splitBed) niclane(args ...string) *exec.Cmd {
	b.Helper()
	return b.command(append([]string{filepath.Join(b.Bin, "niclane"), "--state-dir", filepath.Join(b.Dir, "state"),
		"--run-dir", filepath.Join(b.Dir, "run")}, args...)...)
}

func (b splitBed) on(host string, argv ...string) {
	b.Helper()
	if out, err := b.CommandOn(host, argv...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", argv, err, out)
	}
}

// A splitRun is a running niclane split.
type splitRun struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (b splitBed) start(args ...string) *splitRun {
	b.Helper()
	r := &splitRun{cmd: b.niclane(args...), done: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	must.Do(b, r.cmd.Start())
	go func() { r.done <- r.cmd.Wait() }()
	b.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// An answer is the reply of an instance.
type answer struct{ node, arrived, pid int }

// ask sends one request from the client. The calling thread must be in the client's network
// namespace.
func ask(addr [4]byte) (a answer, err error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return a, err
	}
	f := os.NewFile(uintptr(s), "client")
	defer f.Close()
	if err := unix.Connect(s, &unix.SockaddrInet4{Port: 8080, Addr: addr}); err != nil {
		return a, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, "?\n"); err != nil {
		return a, err
	}
	text, err := io.ReadAll(conn)
	if err == nil {
		_, err = fmt.Sscan(string(text), &a.node, &a.arrived, &a.pid)
	}
	return a, err
}

// batch sends n requests from the client and returns the answers. If one request failed, it returns
// nil.
func (b splitBed) batch(addr [4]byte, n int) (all []answer) {
	b.Helper()
	labtest.OnHost(b.T, b.Lab, lab.Client, func(*testing.T) {
		for range n {
			a, err := ask(addr)
			if err != nil {
				all = nil
				return
			}
			all = append(all, a)
		}
	})
	return all
}

// until waits until cond is true. It fails the test after 90 s, or if niclane split ends before.
func (b splitBed) until(what string, r *splitRun, cond func() bool) {
	b.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !cond() {
		select {
		case err := <-r.done:
			b.Fatalf("niclane split ended (%v), before %s:\n%s", err, what, r.out.String())
		default:
		}
		if time.Now().After(deadline) {
			b.Fatalf("never: %s\n%s%s", what, r.out.String(), b.reports())
		}
	}
}

// reports returns the text of all reports that the keepers have written.
func (b splitBed) reports() string {
	names, _ := filepath.Glob(filepath.Join(b.Dir, "run", "apps", "*.report"))
	var all strings.Builder
	for _, name := range names {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&all, "%s: %s\n", name, text)
	}
	return all.String()
}

// placed checks that the instance that gave an answer may use only the processors and the memory of
// its node.
func (b splitBed) placed(a answer, byCpuset bool) {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	must.Do(b, err)
	var want []int
	for _, cpu := range b.CPUs {
		if b.Node[cpu] == a.node {
			want = append(want, cpu)
		}
	}
	if line := "Cpus_allowed_list:\t" + device.FormatCPUList(want) + "\n"; !strings.Contains(string(status), line) {
		b.Errorf("instance on node %d: no %q in\n%s", a.node, line, status)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/numa_maps", a.pid))
	if errors.Is(err, os.ErrNotExist) {
		return // a kernel without NUMA
	}
	pages := anonymousPages(string(maps))
	here := pages[b.Mem[a.node]]
	delete(pages, b.Mem[a.node])
	if here == 0 || len(pages) > 0 {
		b.Errorf("instance on node %d: %d pages of its own there, on other nodes %v\n%s", a.node, here, pages, maps)
	}
	// If the lane of a shard has a cpuset, the cpuset confines the shard's memory. Then there is no
	// memory policy to check.
	if mems := "Mems_allowed_list:\t" + strconv.Itoa(b.Mem[a.node]) + "\n"; byCpuset &&
		strings.Contains(string(status), mems) {
		return
	}
	if policy := " bind:" + strconv.Itoa(b.Mem[a.node]) + " "; err != nil || !strings.Contains(string(maps), policy) {
		b.Errorf("instance on node %d: no %q in its memory's policies (%v):\n%.300s", a.node, policy, err, maps)
	}
}

// anonymousPages returns how many anonymous pages a process has on each node, from
// /proc/PID/numa_maps (numa(7)). It leaves out the pages of files: they are on the node where a
// process first read the file.
func anonymousPages(maps string) map[int]int {
	pages := map[int]int{}
	for line := range strings.Lines(maps) {
		if strings.Contains(line, " file=") || !strings.Contains(line, " anon=") {
			continue
		}
		for _, f := range strings.Fields(line) {
			var node, n int
			if _, err := fmt.Sscanf(f, "N%d=%d", &node, &n); err == nil {
				pages[node] += n
			}
		}
	}
	return pages
}

// local reports whether each connection was accepted on the node where it arrived, and whether both
// nodes accepted some.
func (b splitBed) local(all []answer) bool {
	taken := map[int]int{}
	for _, a := range all {
		if b.Node[a.arrived] != a.node {
			return false
		}
		taken[a.node]++
	}
	return len(taken) == 2
}

// enough is a number of connections. It is so large that the kernel's hash cannot give all of them,
// by chance, to the node where they arrive.
const enough = 64

func (b splitBed) duplicate() {
	args := []string{"split", "--lane", "web", "lanes.yaml", "--", nodeServer, "10.77.0.1:8080"}
	r := b.start(args...)
	var last []answer
	b.Cleanup(func() {
		if b.Failed() {
			b.Logf("last answers: %v", last)
		}
	})
	b.until("connections stay on the node where they arrive", r, func() bool {
		last = b.batch([4]byte{10, 77, 0, 1}, enough)
		return b.local(last)
	})
	for range 3 {
		if all := b.batch([4]byte{10, 77, 0, 1}, enough); !b.local(all) {
			b.Errorf("then not any more: %v", all)
		}
	}
	var once sync.Map
	for _, a := range last {
		if _, seen := once.LoadOrStore(a.pid, true); !seen {
			b.placed(a, false)
		}
	}
	if out := b.run(0, "verify", "--for", "0"); !strings.Contains(out, "web") {
		b.Errorf("verify: %s", out)
	}
	if out := b.run(1, args...); !strings.Contains(out, "another niclane split, which still runs, has divided this lane") {
		b.Errorf("a second one: %s", out)
	}

	// A killed niclane split leaves its lanes, but no instance runs any more. The next run takes the
	// lanes over.
	_ = r.cmd.Process.Kill()
	<-r.done
	for _, a := range last[:1] {
		pid, err := os.FindProcess(a.pid)
		if err == nil {
			b.until("the instances end", &splitRun{done: make(chan error)},
				func() bool { return pid.Signal(syscall.Signal(0)) != nil })
		}
	}
	r = b.start(args...)
	b.until("connections stay on their node again", r,
		func() bool { return b.local(b.batch([4]byte{10, 77, 0, 1}, enough)) })

	// If one instance ends, niclane split ends the others and rolls the lanes back.
	all := b.batch([4]byte{10, 77, 0, 1}, 1)
	if len(all) != 1 {
		b.Fatal("no answer")
	}
	_ = unix.Kill(all[0].pid, unix.SIGKILL)
	err := <-r.done
	if want := fmt.Sprintf("on node %d ended (signal: killed), so the others were told to end",
		all[0].node); clitest.CodeOf(err) != "1" || !strings.Contains(r.out.String(), want) {
		b.Errorf("an instance was killed: %v, no %q in\n%s", err, want, r.out.String())
	}
	b.nothingLeft()
}

// TestSplitFile: the file of a split is written only in a private directory, and not through a link.
func TestSplitFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "private", "web.yaml")
	f, err := takeFile(path, "text")
	must.Do(t, err)
	must.Do(t, f.Close())
	target := filepath.Join(dir, "target")
	must.Do(t, os.WriteFile(target, nil, 0o600))
	must.Do(t, os.Remove(path))
	must.Do(t, os.Symlink(target, path))
	if _, err := takeFile(path, "text"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link: %v", err)
	}
	must.Do(t, os.Chmod(filepath.Dir(path), 0o755))
	if _, err := takeFile(path, "text"); !errors.Is(err, unix.EPERM) {
		t.Errorf("in a directory of all users: %v", err)
	}
}

func (b splitBed) shard() {
	r := b.start("split", "--lane", "web", "--content", "shard", "shards.yaml", "--", nodeServer, "{addr}:8080")
	for i, addr := range [][4]byte{{10, 77, 0, 1}, {10, 77, 0, 101}} {
		var all []answer
		b.until("an answer of each shard", r, func() bool { all = b.batch(addr, 16); return len(all) > 0 })
		for _, a := range all {
			if want := b.Node[b.CPUs[i]]; a.node != want || a.arrived != b.CPUs[i] {
				b.Errorf("%v: taken on node %d, arrived at processor %d; want node %d, processor %d", addr, a.node,
					a.arrived, want, b.CPUs[i])
			}
		}
		b.placed(all[0], true)
	}
	_ = r.cmd.Process.Signal(unix.SIGTERM)
	if err := <-r.done; err != nil {
		b.Errorf("after SIGTERM: %v\n%s", err, r.out.String())
	}
	b.nothingLeft()
}

// run runs niclane, checks its exit code and returns its output.
func (b splitBed) run(code int, args ...string) string {
	b.Helper()
	out, err := b.niclane(args...).CombinedOutput()
	if clitest.CodeOf(err) != strconv.Itoa(code) {
		b.Errorf("niclane %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

func (b splitBed) nothingLeft() {
	b.Helper()
	if out := b.run(0, "status"); !strings.Contains(out, "no lanes are applied here") {
		b.Errorf("status: %s", out)
	}
	left, err := filepath.Glob(filepath.Join(b.Dir, "run", "split", "*"))
	if err != nil || len(left) > 0 {
		b.Errorf("left: %v %v", left, err)
	}
	b.until("the records are gone", &splitRun{done: make(chan error)}, func() bool {
		records, _ := filepath.Glob(filepath.Join(b.Dir, "run", "apps", "*.json"))
		return len(records) == 0
	})
}

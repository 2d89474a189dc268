// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/must"
)

// commands runs commands and fails the test if one fails.
func (b *bed) commands(lines ...string) {
	b.Helper()
	for _, line := range lines {
		f := strings.Fields(line)
		if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}

// qemu starts a virtual machine with three processors at the tap vm0, in a bridge. The machine does
// not run: the test needs only QEMU's threads and the open tap.
func (b *bed) qemu() int {
	b.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		b.Skip("no qemu-system-x86_64 here")
	}
	b.commands("ip link add br0 type bridge", "ip link set br0 up", "ip tuntap add dev vm0 mode tap",
		"ip link set vm0 master br0 up")
	b.Cleanup(func() { b.commands("ip link del br0", "ip link del vm0") })
	var said strings.Builder
	cmd := exec.Command(qemu, "-machine", "pc,accel=tcg", "-nodefaults", "-display", "none", "-S", "-smp", "3", "-m",
		"64",
		"-name", "test,debug-threads=on", "-netdev", "tap,id=n,ifname=vm0,script=no,downscript=no", "-device",
		"virtio-net-pci,netdev=n,romfile=")
	cmd.Stderr = &said
	must.Do(b, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	b.until("the machine has its tap and three processors", func() bool {
		select {
		case err := <-ended:
			ended <- err
			b.Fatalf("qemu: %v: %s", err, said.String())
		default:
		}
		tap, err := net.InterfaceByName("vm0")
		must.Do(b, err)
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", cmd.Process.Pid))
		processors := 0
		for _, name := range names {
			if comm, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(comm), "CPU ") {
				processors++
			}
		}
		return tap.Flags&net.FlagRunning != 0 && processors == 3
	})
	return cmd.Process.Pid
}

// allowedAll returns on which processors each thread of a process may run, by thread ID.
func allowedAll(t *testing.T, pid int) map[string][]int {
	t.Helper()
	all := map[string][]int{}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) < 4 {
		t.Fatalf("%d threads, %v: want QEMU's own and three processors", len(tasks), err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		must.Do(t, err)
		all[filepath.Base(task)] = allowed(t, tid)
	}
	return all
}

func TestMachine(t *testing.T) {
	for _, managed := range []bool{false, true} {
		t.Run(fmt.Sprintf("managed %t", managed), func(t *testing.T) {
			b := newBed(t)
			b.lane.Config, b.lane.Members = "/lanes.yaml",
				[]app.Member{{Protocol: "tcp", Addrs: []string{"10.88.0.2/32"}}}
			pid := b.qemu()
			if managed {
				b.scope(pid)
			}
			before, was := b.cgroups(pid), allowedAll(t, pid)
			if runtime.NumCPU() < 2 {
				t.Skip("one processor: there is nothing to confine to")
			}
			for tid, cpus := range was {
				if len(cpus) < 2 {
					t.Fatalf("thread %s has processors %v before, on a machine of %d", tid, cpus, runtime.NumCPU())
				}
			}

			r := b.attach(options(b.dir), app.Target{Tap: "vm0"})
			if r.Process.PID != pid || r.Called() != "the machine at vm0" {
				t.Errorf("%s, process %d, want %d", r.Called(), r.Process.PID, pid)
			}
			for tid, cpus := range allowedAll(t, pid) {
				if !slices.Equal(cpus, []int{0}) {
					t.Errorf("in the lane thread %s runs on processors %v, want the lane's, 0", tid, cpus)
				}
			}
			if now := b.cgroups(pid); managed && now != before {
				t.Errorf("its manager's groups became\n%sfrom\n%s", now, before)
			}
			notes := strings.Join(r.Notes, "\n")
			for _, want := range []string{"the host knows no address behind vm0",
				"the machine's 3 processors share processors 0"} {
				if !strings.Contains(notes, want) {
					t.Errorf("no %q in the notes:\n%s", want, notes)
				}
			}
			b.detach(app.Choice{Tap: "vm0"})
			if after := b.cgroups(pid); after != before {
				t.Errorf("groups after\n%sbefore\n%s", after, before)
			}
			for tid, cpus := range allowedAll(t, pid) {
				if !slices.Equal(cpus, was[tid]) {
					t.Errorf("detached, thread %s runs on processors %v, before on %v", tid, cpus, was[tid])
				}
			}
			b.nothingLeft()
		})
	}
}

// scope moves a process into a control group with a name like that of systemd's group for a virtual
// machine.
func (b *bed) scope(pid int) {
	b.Helper()
	made := false
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuset"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
			continue
		}
		dir := fmt.Sprintf("%s/machine-niclane-test-%d.scope", root, os.Getpid())
		must.Do(b, os.Mkdir(dir, 0o755))
		b.Cleanup(func() {
			_ = os.WriteFile(root+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
			b.until("the group is empty", func() bool { return os.Remove(dir) == nil })
		})
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if text, err := os.ReadFile(root + "/" + f); err == nil { // version 1: a new group has empty sets
				must.Do(b, os.WriteFile(dir+"/"+f, text, 0))
			}
		}
		must.Do(b, os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0))
		made = true
	}
	if !made {
		b.Skip("no control groups here")
	}
}

// TestMachineAddresses: Attach adds a note if a machine has an address that the lane lacks. It
// finds the machine's addresses in the tables of the bridge and the host.
func TestMachineAddresses(t *testing.T) {
	b := newBed(t)
	b.lane.Config, b.lane.Members = "/lanes.yaml", []app.Member{{Protocol: "tcp", Addrs: []string{"10.88.0.2/32"}}}
	b.qemu()
	b.commands("ip address add 10.88.0.1/24 dev br0", "bridge fdb add 52:54:00:00:00:02 dev vm0 master dynamic",
		"ip neigh add 10.88.0.2 lladdr 52:54:00:00:00:02 dev br0",
		"ip neigh add 10.88.0.3 lladdr 52:54:00:00:00:02 dev br0",
		"ip neigh add 10.88.0.4 lladdr 52:54:00:00:00:04 dev br0")
	r := b.attach(options(b.dir), app.Target{Tap: "vm0"})
	notes := strings.Join(r.Notes, "\n")
	if !strings.Contains(notes, "the machine's address 10.88.0.3 is in no addrs of lane") ||
		strings.Contains(notes, "10.88.0.2,") || strings.Contains(notes, "10.88.0.4") {
		t.Errorf("notes:\n%s", notes)
	}
	b.detach(app.Choice{Tap: "vm0"})
	b.nothingLeft()
	b.refusesInside(app.Target{Tap: "vm0"}, "choose a classifier by flow", "run niclane in the machine")
	b.nothingLeft()
}

func TestNoMachine(t *testing.T) {
	b := newBed(t)
	b.commands("ip tuntap add dev idle0 mode tap")
	t.Cleanup(func() { b.commands("ip link del idle0") })
	for tap, want := range map[string]string{
		"lo":    "want the tap or macvtap of a virtual machine",
		"idle0": "no process has idle0 open",
		"gone0": "gone0: Link not found",
	} {
		b.refuses(options(b.dir), app.Target{Tap: tap}, want)
	}
	// Make two processes hold one queue each of the same tap.
	var fds []int
	for range 2 {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
			t.Skipf("/dev/net/tun: %v", err) // a container may have no such device
		}
		must.Do(t, err)
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		req, err := unix.NewIfreq("many0")
		must.Do(t, err)
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE)
		must.Do(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, req))
	}
	b.refuses(options(b.dir), app.Target{Tap: "many0"}, "is niclane itself")
	b.nothingLeft()
}

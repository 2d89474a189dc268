// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/must"
)

// polling counts the epoll instances and listeners of a process by their settings. The keys are
// "epoll USECS/BUDGET/PREFER" and "listener USECS/PREFER".
func (b *bed) polling(pid int) map[string]int {
	b.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	must.Do(b, err)
	defer unix.Close(pidfd)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must.Do(b, err)
	got := map[string]int{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		must.Do(b, err)
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			continue
		}
		params := struct {
			usecs  uint32
			budget uint16
			prefer uint8
			_      uint8
		}{}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.EPIOCGPARAMS, uintptr(unsafe.Pointer(&params)))
		if link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); link == "anon_inode:[eventpoll]" {
			if errno != 0 {
				unix.Close(fd)
				noParams(b, "EPIOCGPARAMS", errno)
			}
			got[fmt.Sprintf("epoll %d/%d/%d", params.usecs, params.budget, params.prefer)]++
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			usecs, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
			must.Do(b, err)
			prefer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL)
			must.Do(b, err)
			got[fmt.Sprintf("listener %d/%d", usecs, prefer)]++
		}
		unix.Close(fd)
	}
	return got
}

// noParams skips the test if the kernel has no busy-poll settings for epoll instances (before Linux
// 6.9, 18e2bf0edf4d). On a newer kernel it fails the test.
func noParams(t testing.TB, what string, errno error) {
	t.Helper()
	var u unix.Utsname
	must.Do(t, unix.Uname(&u))
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("kernel release %q: %v", release, err)
	}
	if major > 6 || major == 6 && minor >= 9 {
		t.Fatalf("%s on Linux %s: %v", what, release, errno)
	}
	t.Skipf("%s: %v: Linux %s has no parameters of epoll instances", what, errno, release)
}

// TestBusyPoll attaches an unmodified memcached with busy polling. Its epoll instances, its
// listener and its accepted connections get the settings.
func TestBusyPoll(t *testing.T) {
	memcached, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("no memcached here")
	}
	b := newBed(t)
	b.commands("ip link set lo up")
	const port = "11999"
	cmd := exec.Command(memcached, "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-t", "3")
	cmd.Stderr = os.Stderr
	pid := b.running(cmd)
	connect := func() net.Conn {
		var c net.Conn
		b.until("memcached accepts", func() (ok bool) {
			c, err = net.Dial("tcp", "127.0.0.1:"+port)
			return err == nil
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	connect()
	var before map[string]int
	b.until("memcached has an epoll instance for each thread", func() bool {
		before = b.polling(pid)
		return before["epoll 0/0/0"] >= 4
	})
	if before["listener 0/0"] != 1 {
		t.Fatalf("before: %v", before)
	}

	o := options(b.dir)
	o.BusyPoll = &app.BusyPoll{Usecs: 70, Budget: 16, Prefer: true}
	r := b.attach(o, app.Target{PID: pid})
	want := map[string]int{"epoll 70/16/1": before["epoll 0/0/0"], "listener 70/1": 1}
	if got := b.polling(pid); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("in the lane: %v, want %v", got, want)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes,
		fmt.Sprintf("busy polling: %d epoll instances, 1 listeners and UDP sockets", before["epoll 0/0/0"])) {
		t.Errorf("notes:\n%s", notes)
	}

	// If a process enters the group later, the keeper sets busy polling on it too.
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	must.Do(t, err)
	defer unix.Close(epoll)
	later := exec.Command("sleep", "1000")
	later.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, epoll)), "epoll")}
	next := b.running(later)
	for _, g := range r.Groups {
		must.Do(t, os.WriteFile(g.Dir()+"/cgroup.procs", []byte(strconv.Itoa(next)), 0))
	}
	b.until("the epoll instance that came polls", func() bool { return b.polling(next)["epoll 70/16/1"] == 1 })
	b.detach(app.Choice{PID: pid})
	if got := b.polling(pid); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("detached: %v, before %v", got, before)
	}
	b.nothingLeft()
}

// TestBusyPollOwn: niclane keeps settings that the application made itself, both in the lane and
// after it.
func TestBusyPollOwn(t *testing.T) {
	b := newBed(t)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	must.Do(t, err)
	defer unix.Close(epoll)
	own := [8]byte{99, 0, 0, 0, 8}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(epoll), unix.EPIOCSPARAMS,
		uintptr(unsafe.Pointer(&own))); errno != 0 {
		noParams(t, "EPIOCSPARAMS", errno)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(udp)
	must.Do(t, unix.SetsockoptInt(udp, unix.SOL_SOCKET, unix.SO_BUSY_POLL, 33))
	// A sleeping child inherits both descriptors.
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(t, epoll)), "epoll"), os.NewFile(uintptr(dup(t, udp)), "udp")}
	pid := b.running(cmd)
	o := options(b.dir)
	o.BusyPoll = &app.BusyPoll{Usecs: 70, Budget: 16, Prefer: true}
	r := b.attach(o, app.Target{PID: pid})
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "2 have parameters of the application's own") {
		t.Errorf("notes:\n%s", notes)
	}
	b.detach(app.Choice{PID: pid})
	if got := b.polling(pid); got["epoll 99/8/0"] != 1 {
		t.Errorf("detached: %v, want epoll 99/8/0", got)
	}
	if usecs, err := unix.GetsockoptInt(udp, unix.SOL_SOCKET, unix.SO_BUSY_POLL); err != nil || usecs != 33 {
		t.Errorf("SO_BUSY_POLL %d, %v, want 33", usecs, err)
	}
	b.nothingLeft()
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	must.Do(t, err)
	return n
}

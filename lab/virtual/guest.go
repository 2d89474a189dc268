// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clocksource has the name of the kernel's clock.
const clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// openFiles are the limits of open files, as systemd sets them. The kernel's own do not suffice for a
// server with thousands of connections.
var openFiles = unix.Rlimit{Cur: 1024, Max: 512 << 10}

// Path is the guest's PATH.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Here reports whether this process runs in virtual time.
func Here() bool {
	text, err := os.ReadFile(clocksource)
	return err == nil && strings.TrimSpace(string(text)) == "time-travel-clock"
}

// seedVariable has the guest's seed in the environment of its programs. The kernel takes the seed out of
// its command line.
const seedVariable = "NICLANE_VIRTUAL_SEED"

// Seed returns what the random numbers of this guest come from; 0 elsewhere.
func Seed() uint64 {
	if !Here() {
		return 0
	}
	seed, _ := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	return seed
}

// Init is the first process of a guest. It mounts what programs expect, runs the program of the
// job, writes its exit status, and ends the guest. It returns only if this process is not the first
// of a guest. path is the job's.
func Init(path string) error {
	if os.Getpid() != 1 || os.Getenv(guestVariable) == "" {
		return errors.New("virtual: this process is not the first of a guest in virtual time")
	}
	if err := initialize(path); err != nil {
		fmt.Fprintln(os.Stderr, "virtual:", err) // on the console, which boot keeps
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func initialize(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := mounts(j.Writable); err != nil {
		return err
	}
	stdout, err := serial(0)
	if err != nil {
		return err
	}
	stderr, err := serial(1)
	if err != nil {
		return err
	}
	life, err := serial(2)
	if err != nil {
		return err
	}
	go func() {
		for range time.Tick(beat) {
			_, _ = life.Write([]byte{'.'})
		}
	}()
	if err := loopback(); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &openFiles); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	env := append(j.Env, "PATH="+Path, "HOME=/root", "TMPDIR=/tmp", "LANG=C.UTF-8") // the first of a name counts
	p, err := os.StartProcess(j.Args[0], j.Args,
		&os.ProcAttr{Dir: j.Dir, Env: env, Files: []*os.File{null, stdout, stderr}})
	if err != nil {
		return err
	}
	status := reap(p.Pid)
	return os.WriteFile(j.Status, []byte(strconv.Itoa(status)), 0o600)
}

// reap waits for all processes, as the first one must, until pid has ended. It returns the exit
// status of pid, 128 and more for a signal.
func reap(pid int) int {
	for {
		var w unix.WaitStatus
		got, err := unix.Wait4(-1, &w, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1
		case got == pid && w.Signaled():
			return 128 + int(w.Signal())
		case got == pid && w.Exited():
			return w.ExitStatus()
		}
	}
}

// A mount is one of the guest's file systems.
type mount struct {
	kind, at string
	flags    uintptr
	data     string
}

// mounts makes the guest's root: the host's files below an overlay, in which writes stay in the
// guest's memory, and the file systems of the kernel.
func mounts(writable []string) error {
	const base, root = "/run", "/run/root"
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("tmpfs on %s: %w", base, err)
	}
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			return err
		}
	}
	list := []mount{
		{"overlay", "/", 0, "lowerdir=/,upperdir=" + base + "/upper,workdir=" + base + "/work"},
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"bpf", "/sys/fs/bpf", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "mode=0700"},
		{"cgroup2", "/sys/fs/cgroup", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"debugfs", "/sys/kernel/debug", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	}
	for _, d := range writable {
		list = append(list, mount{"hostfs", d, 0, d})
	}
	for _, m := range list {
		at := filepath.Join(root, m.at)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, at, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("%s on %s: %w", m.kind, m.at, err)
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	return os.Chdir("/")
}

// serial opens a serial line, on which every byte goes to the host as it is.
func serial(n int) (*os.File, error) {
	f, err := os.OpenFile("/dev/ttyS"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	return f, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

// loopback sets the loopback device up.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

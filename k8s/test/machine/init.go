// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// initName is the value of argv[0] with which a machine's first process is started.
const initName = "niclane-machine-init"

// Main does nothing unless argv[0] is initName. Then this process is a machine's first process, and
// Main never returns. A program that boots machines must call Main at its start, a test in
// TestMain.
func Main() {
	if os.Args[0] != initName {
		return
	}
	// All processes must be started by the thread that enters the cgroup namespace.
	runtime.LockOSThread()
	if err := serve(os.NewFile(3, "control")); err != nil {
		fmt.Fprintln(os.Stderr, initName+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// children are the processes that a request has started and whose end must be reported.
type children struct {
	mu  sync.Mutex
	ids map[int]int // the ID of the request that started a process, by PID
}

// serve handles requests from the program that booted the machine, until that program closes its
// end of control.
func serve(control *os.File) error {
	unix.CloseOnExec(3)
	c := &children{ids: map[int]int{}}
	go c.reap(control)
	buf, rights := make([]byte, maxPacket), make([]byte, 256)
	for {
		n, nr, _, _, err := unix.Recvmsg(3, buf, rights, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		var r request
		if err := json.Unmarshal(buf[:n], &r); err != nil {
			return err
		}
		var a answer
		switch {
		case r.Boot != nil:
			err = boot(*r.Boot)
		case r.Signal != nil:
			err = unix.Kill(r.Signal.Pid, unix.Signal(r.Signal.Number))
		case r.Start != nil:
			var files []*os.File
			if files, err = received(rights[:nr]); err == nil {
				// With the lock, reap waits until the new child is in the table.
				c.mu.Lock()
				if a.Pid, err = start(*r.Start, files); err == nil {
					c.ids[a.Pid] = r.ID
				}
				reply(control, r.ID, a, err)
				c.mu.Unlock()
				continue
			}
		}
		reply(control, r.ID, a, err)
	}
}

func reply(control *os.File, id int, a answer, err error) {
	a.ID = id
	if err != nil {
		a.Error = err.Error()
	}
	text, _ := json.Marshal(a) // no error with strings and numbers
	unix.Write(int(control.Fd()), text)
}

func received(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d messages of file descriptors: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), ""))
	}
	return files, nil
}

// start starts a program and returns its PID. files are standard input, output and error. The
// program gets its own session, so that it gets no signals from a terminal.
func start(c Command, files []*os.File) (int, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(path, c.Args, &os.ProcAttr{
		Dir: "/", Env: append(os.Environ(), c.Env...), Files: files, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	defer p.Release()
	return p.Pid, nil
}

// reap collects all ended processes of the machine, also those whose parent has ended. It reports
// the end of those that a request has started.
func (c *children) reap(control *os.File) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for range signals {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			c.mu.Lock()
			id, ours := c.ids[pid]
			delete(c.ids, pid)
			c.mu.Unlock()
			if ours {
				reply(control, id, answer{Pid: pid, Ended: true, Status: uint32(status)}, nil)
			}
		}
	}
}

// boot sets up the machine for this process, its first one: mounts, control groups, root directory,
// host name and loopback.
func boot(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from the host: %w", err)
	}
	hierarchies, err := enterCgroups(c.Name, filepath.Join(c.Disk, "root"))
	if err != nil {
		return err
	}
	if err := makeRoot(c, hierarchies); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	return loopbackUp()
}

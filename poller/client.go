// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// How long the Client waits: until a poller is ready, for an answer, for its end on request, and
// for its end after SIGKILL.
const (
	startWithin  = 3 * time.Minute // long, for emulated processors
	answerWithin = 5 * time.Second
	endWithin    = 2 * time.Second
	killedWithin = time.Minute // the kernel must free its ring and programs
)

// A Client starts, finds and ends pollers in the network namespace of the calling thread. The
// caller must hold the lock of the run directory, because the Client removes sockets on which no
// process listens.
type Client struct {
	// RunDir is niclane's run directory; "" means DefaultRunDir. A Client finds only pollers that were
	// started with the same RunDir.
	RunDir string
	// Tied makes the started pollers end together with this process, even if this process is killed.
	// Services set it. Pollers that are not tied run until they are told to end.
	Tied bool
}

// Read returns the running poller that has the key of o, or nil if there is none.
func (c Client) Read(o device.Object) (device.Object, error) {
	want, ok := o.(device.Poller)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not poller's", o.Kind())
	}
	d, err := openDir(c.RunDir)
	if d == nil {
		return nil, err
	}
	defer d.close()
	s, err := d.read(want)
	if s == nil {
		return nil, err
	}
	return s.Poller, nil
}

// Write starts, ends or replaces a poller. It returns when the new poller polls and the old one has
// ended.
func (c Client) Write(old, next device.Object) error {
	p, starts := next.(device.Poller)
	if starts {
		if err := os.MkdirAll(pathOf(c.RunDir), 0o700); err != nil {
			return fmt.Errorf("pollers: %w", err)
		}
	}
	d, err := openDir(c.RunDir)
	if err == nil && d == nil && starts {
		err = fmt.Errorf("pollers: %s: %w", pathOf(c.RunDir), os.ErrPermission)
	}
	if d == nil || err != nil {
		return err
	}
	defer d.close()
	defer unix.Rmdir(d.path) // fails unless the directory is empty
	if err := d.clean(); err != nil {
		return err
	}
	if p, ok := old.(device.Poller); ok {
		if err := d.end(p); err != nil {
			return err
		}
	}
	if !starts {
		return nil
	}
	if err := d.alone(p); err != nil {
		return err
	}
	return c.begin(d, p)
}

// alone returns an error if another of niclane's pollers already polls one of p's queues.
func (d *dir) alone(p device.Poller) error {
	all, err := d.list()
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, q := range p.Queues {
			if s.Dev == p.Dev && s.Key() != p.Key() && slices.Contains(s.Queues, q) {
				return fmt.Errorf("%s: queue %d is polled by %s (process %d) already", p.Key(), q, s.Key(), s.PID)
			}
		}
	}
	return nil
}

// begin starts a poller's process. It makes the listening socket and passes it to the process. So
// other processes can find the poller even before it is ready.
func (c Client) begin(d *dir, p device.Poller) (err error) {
	n, err := d.name(p)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key(), err)
	}
	l, err := net.ListenUnix("unix", d.address(n))
	if err != nil {
		return fmt.Errorf("%s: %s: %w", p.Key(), d.pathOf(n), errors.Unwrap(err))
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove(n))
		}
	}()
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	arg, err := json.Marshal(argument{p, c.Tied})
	if err != nil {
		return errors.Join(err, theirs.Close())
	}
	// The kernel forks the child from this thread, so the child is in this thread's network namespace.
	cmd := exec.Command("/proc/self/exe", Command, string(arg))
	cmd.Args[0] = "niclane"
	cmd.Dir = "/"
	// Without asyncpreemptoff, the Go runtime would interrupt the kernel's busy loop with a signal
	// every 10 ms.
	cmd.Env = []string{"GODEBUG=asyncpreemptoff=1"}
	cmd.ExtraFiles = []*os.File{socket, theirs}
	if c.Tied {
		end, err := tie()
		if err != nil {
			return errors.Join(err, theirs.Close())
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, end)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key(), err)
	}
	// Reap the process if it ends before this one does. Otherwise init reaps it.
	go cmd.Wait()
	if err := ours.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	words, err := io.ReadAll(ours)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%s: not ready within %v", p.Key(), startWithin)
		return errors.Join(err, ignore(cmd.Process.Kill(), os.ErrProcessDone))
	}
	if said := strings.TrimSpace(string(words)); said != "ready" {
		if said == "" {
			said = "it ended before it was ready"
		}
		return errors.Join(fmt.Errorf("%s: %s", p.Key(), said), err, ignore(cmd.Process.Kill(), os.ErrProcessDone))
	}
	return nil
}

// tie returns the read end of a pipe, the same one at each call. The write end stays open until
// this process ends; a tied poller then reads the end of file. The write end is a bare descriptor,
// because the garbage collector would close an os.File.
var tie = sync.OnceValues(func() (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "tie"), nil
})

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// end ends a poller and waits until it has ended. It kills a poller that does not answer. If there
// is no such poller, end returns nil.
func (d *dir) end(p device.Poller) error {
	c, err := d.find(p)
	if c == nil {
		return err
	}
	defer c.Close()
	s, err := c.status()
	if err != nil {
		return err
	}
	if s != nil { // s is nil if the poller has just ended
		if err := c.end(s.Doing == device.PollerHung); err != nil {
			return fmt.Errorf("%s: process %d: %w", p.Key(), c.pid, err)
		}
	}
	return d.remove(c.name)
}

// end ends the poller's process: with the request "stop", or with SIGKILL if the process hangs.
func (c *conn) end(hung bool) error {
	if !hung {
		if _, err := fmt.Fprintln(c, "stop"); err == nil && ended(c.process, endWithin) {
			return nil
		}
	}
	if err := unix.PidfdSendSignal(c.process, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill: %w", err)
	}
	if !ended(c.process, killedWithin) {
		return fmt.Errorf("it does not end within %v of SIGKILL", killedWithin)
	}
	return nil
}

// ended waits until the process of a pidfd has ended, but not longer than most. It reports whether
// the process has ended.
func ended(fd int, most time.Duration) bool {
	deadline := time.Now().Add(most)
	for {
		left := time.Until(deadline)
		if left < 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 || err != nil && err != unix.EINTR {
			return err == nil
		}
	}
}

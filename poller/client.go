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

// Time limits: for a poller to be ready, to answer, to end on request, and to end after
// SIGKILL.
const (
	startWithin  = 3 * time.Minute // on an emulated processor
	answerWithin = 5 * time.Second
	endWithin    = 2 * time.Second
	killedWithin = time.Minute // for the kernel to free its ring and programs
)

// A Client starts, finds and ends pollers in the network namespace of the calling thread. The
// caller holds the lock of the run directory, because the Client removes sockets that no
// process has open.
type Client struct {
	// RunDir is niclane's run directory, DefaultRunDir if empty. A Client finds only pollers
	// that were started with the same RunDir.
	RunDir string
	// Tied makes the started pollers end with this process, even if it is killed: for a
	// service. Other pollers run until they are ended.
	Tied bool
}

// Read returns the running poller with o's identity, nil if there is none.
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

// Write starts, ends or replaces a poller. It returns when the new one polls and the old one
// has ended.
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
	defer unix.Rmdir(d.path) // succeeds only if it is empty
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

// alone refuses queues that another of niclane's pollers polls.
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

// begin starts a poller's process. It makes and opens the listening socket here, so that other
// processes can find the poller from now on.
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
	// The child is forked from this thread, and so is in its network namespace.
	cmd := exec.Command("/proc/self/exe", Command, string(arg))
	cmd.Args[0] = "niclane"
	cmd.Dir = "/"
	// Without asyncpreemptoff, Go would interrupt the kernel's busy loop every 10 ms by a signal.
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
	// Reap the process if it ends before this one. Otherwise init does.
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

// tie returns the read end of this process's only pipe. The write end stays open until the
// process ends. It is a bare descriptor, because the garbage collector would close an os.File.
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

// end ends a poller and waits for its end. It kills a poller that does not answer. If there is
// none, end returns nil.
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
	if s != nil { // nil: it has just ended
		if err := c.end(s.Doing == device.PollerHung); err != nil {
			return fmt.Errorf("%s: process %d: %w", p.Key(), c.pid, err)
		}
	}
	return d.remove(c.name)
}

// end ends the process: by "stop", or by SIGKILL if it hangs.
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

// ended waits for the end of a pidfd's process, no longer than most. It reports whether the
// process ended.
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

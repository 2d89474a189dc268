// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"bufio"
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

	"github.com/niclane/niclane/device"
)

// Bounds of how long a poller may take to be ready, to answer, to end before it
// is killed, and to end then.
const (
	startWithin  = 3 * time.Minute // on an emulated processor
	answerWithin = 5 * time.Second
	endWithin    = 2 * time.Second
	killedWithin = time.Minute // what the kernel takes to free its ring and programs
)

// A Client starts, finds and ends pollers in the network namespace of the
// calling thread. Its zero value is ready.
type Client struct {
	// Tied has the pollers that it starts end with this process, however it
	// ends: for a service. Others stay until they are ended.
	Tied bool
}

// address is the abstract socket that a poller listens on. Its names are the
// network namespace's, and vanish with their last listener (unix(7)).
func address(key string) *net.UnixAddr { return &net.UnixAddr{Net: "unix", Name: prefix + key} }

const prefix = "@niclane/"

// Read returns the poller with o's identity as it is running, nil if there is
// none.
func (Client) Read(o device.Object) (device.Object, error) {
	want, ok := o.(device.Poller)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not poller's", o.Kind())
	}
	s, err := ask(want.Key())
	if err != nil || s == nil {
		return nil, err
	}
	return s.Poller, nil
}

// Write starts, ends or replaces a poller. It returns when the new one polls,
// and when the old one is no more.
func (c Client) Write(old, new device.Object) error {
	if p, ok := old.(device.Poller); ok {
		if err := end(p.Key()); err != nil {
			return err
		}
	}
	p, ok := new.(device.Poller)
	if !ok {
		return nil
	}
	if err := c.alone(p); err != nil {
		return err
	}
	return c.begin(p)
}

// alone refuses queues that another poller of niclane's polls.
func (Client) alone(p device.Poller) error {
	all, err := List()
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

// begin starts a poller's process. Its socket is made here, and bound for as
// long as one of the two processes lives: whoever asks from now on finds it.
func (c Client) begin(p device.Poller) error {
	l, err := net.ListenUnix("unix", address(p.Key()))
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key(), err)
	}
	defer l.Close()
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
	// The child forks from this thread, so it is in its network namespace.
	cmd := exec.Command("/proc/self/exe", Command, string(arg))
	cmd.Args[0] = "niclane"
	cmd.Dir = "/"
	// Without asyncpreemptoff Go would interrupt the kernel's busy loop by a
	// signal every 10 ms.
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
	// Collected here if it ends before us, by init otherwise.
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

// tie returns the reading end of this process's one pipe, whose other end is open
// until the process ends. That end is a bare descriptor: no os.File of it is there
// for the garbage collector to close.
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

// end has a poller end, and waits for it: by force if it does not answer. None
// is no error.
func end(key string) error {
	c, err := dial(key)
	if c == nil {
		return err
	}
	defer c.Close()
	s, err := c.status()
	if err != nil || s == nil { // or it has just ended
		return err
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: process %d: %w", key, s.PID, err)
	}
	defer unix.Close(fd)
	if s.Doing != device.PollerHung {
		if _, err := fmt.Fprintln(c, "stop"); err == nil && ended(fd, endWithin) {
			return nil
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("%s: kill process %d: %w", key, s.PID, err)
	}
	if !ended(fd, killedWithin) {
		return fmt.Errorf("%s: process %d does not end", key, s.PID)
	}
	return nil
}

// startedAs returns the poller that a process was started as, by its arguments;
// ok is false if it was not started as one.
func startedAs(pid int) (p device.Poller, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(b), "\x00")
	if err != nil || len(args) < 3 || args[1] != Command {
		return p, false
	}
	return p, json.Unmarshal([]byte(args[2]), &p) == nil
}

// ended waits for the process of a pidfd to end.
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

// ask returns what the poller says of itself, nil if there is none.
func ask(key string) (*device.PollerState, error) {
	c, err := dial(key)
	if c == nil {
		return nil, err
	}
	defer c.Close()
	return c.status()
}

// conn is a connection to a poller.
type conn struct {
	net.Conn
	key string
	pid int // of who listens
	in  *bufio.Reader
}

// dial connects to a poller; nil if there is none.
func dial(key string) (*conn, error) {
	c, err := net.DialUnix("unix", nil, address(key))
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	pid, err := rootsPeer(c)
	if err == nil && pid == 0 {
		err = fmt.Errorf("the abstract socket %s%s is another user's", prefix, key)
	}
	if err == nil {
		err = c.SetDeadline(time.Now().Add(answerWithin))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", key, err), c.Close())
	}
	return &conn{c, key, pid, bufio.NewReader(c)}, nil
}

// rootsPeer returns the process at the other end if it is, or was when it
// listened, root's: anybody in the network namespace can bind a name, and
// connect. Otherwise it returns 0.
func rootsPeer(c net.Conn) (pid int, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return 0, errors.Join(cerr, err)
	}
	if cred.Uid != 0 {
		return 0, nil
	}
	return int(cred.Pid), nil
}

// status asks. A connection that ends without an answer is of a process that
// has ended.
func (c *conn) status() (*device.PollerState, error) {
	if _, err := fmt.Fprintln(c, "status"); err != nil {
		return nil, nil
	}
	line, err := c.in.ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p, ok := startedAs(c.pid)
		if !ok {
			return nil, fmt.Errorf("%s: process %d does not answer within %v", c.key, c.pid, answerWithin)
		}
		return &device.PollerState{Poller: p, PID: c.pid, Thread: c.pid, Doing: device.PollerHung}, nil
	}
	if err != nil {
		return nil, nil
	}
	var s device.PollerState
	if err := json.Unmarshal(line, &s); err != nil {
		return nil, fmt.Errorf("%s: process %d answers %.40q: %w", c.key, c.pid, line, err)
	}
	return &s, nil
}

// List returns the pollers of the calling thread's network namespace, by
// their sockets' names.
func List() ([]device.PollerState, error) {
	b, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return nil, err
	}
	var out []device.PollerState
	var keys []string
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, prefix) {
			continue // a node has hundreds
		}
		// "Num: RefCount Protocol Flags Type St Inode Path" (proc_net_unix(5)).
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		key, ok := strings.CutPrefix(f[7], prefix)
		if ok && strings.HasPrefix(key, device.Poller{}.Kind()+"/") && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		s, err := ask(key)
		if err != nil {
			return nil, err
		}
		if s != nil {
			out = append(out, *s)
		}
	}
	return out, nil
}

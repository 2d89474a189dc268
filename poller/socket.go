// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/device"
)

// DefaultRunDir is the default run directory.
const DefaultRunDir = "/run/niclane"

// A dir is the open directory of the pollers' sockets, RUNDIR/pollers. netns and links are of the
// network namespace in which it was opened. Only the directory's owner, root, can make names in it
// or connect to its sockets.
type dir struct {
	path  string
	fd    int
	netns uint64 // inode number of the network namespace
	links int    // a socket in that network namespace, for ioctls about devices
}

// openDir opens the directory. If the directory does not exist or this user may not read it,
// openDir returns nil: pollers answer only their owner. If the directory belongs to another user or
// other users can enter it, openDir returns an error.
func openDir(runDir string) (d *dir, err error) {
	d = &dir{path: pathOf(runDir), links: -1}
	d.fd, err = privatedir.Open(d.path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	if err == nil {
		var st unix.Stat_t
		err = unix.Stat("/proc/thread-self/ns/net", &st)
		d.netns = st.Ino
	}
	if err == nil {
		d.links, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("pollers: %w", err)
	}
	return d, nil
}

func pathOf(runDir string) string { return filepath.Join(cmp.Or(runDir, DefaultRunDir), "pollers") }

func (d *dir) close() {
	for _, fd := range []int{d.fd, d.links} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// clean removes sockets on which no process listens, in all network namespaces. The caller must
// hold the lock of the run directory. Otherwise clean could remove the socket of a poller that
// starts just now and does not listen yet.
func (d *dir) clean() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		c, err := net.DialUnix("unix", nil, d.address(n))
		if err == nil {
			c.Close()
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			if err := d.remove(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// A name is the file name of a poller's socket: NETNS.IFINDEX.QUEUE. It has the device's index, so
// a renamed device keeps its pollers.
type name struct {
	netns uint64
	index uint32
	queue int
}

func (n name) String() string { return fmt.Sprintf("%d.%d.%d", n.netns, n.index, n.queue) }

// name returns the name of a poller's socket. If there is no such device, the error is ENODEV.
func (d *dir) name(p device.Poller) (name, error) {
	r, err := unix.NewIfreq(p.Dev)
	if err == nil {
		err = unix.IoctlIfreq(d.links, unix.SIOCGIFINDEX, r)
	}
	if err != nil {
		return name{}, fmt.Errorf("%s: %w", p.Dev, err)
	}
	return name{d.netns, r.Uint32(), first(p)}, nil
}

// first returns a poller's first queue. It is a part of the name.
func first(p device.Poller) int {
	if len(p.Queues) == 0 {
		return 0
	}
	return p.Queues[0]
}

// device returns the present name of the device with an interface index, "" if there is none.
func (d *dir) device(index uint32) string {
	r, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	r.SetUint32(index)
	if unix.IoctlIfreq(d.links, unix.SIOCGIFNAME, r) != nil {
		return ""
	}
	return r.Name()
}

// address returns the address of a socket as a path through the open directory. So a directory that
// was moved, or whose own path is too long for a socket address (unix(7)), does no harm.
func (d *dir) address(n name) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%v", d.fd, n)}
}

func (d *dir) pathOf(n name) string { return filepath.Join(d.path, n.String()) }

// remove removes a socket on which no process listens.
func (d *dir) remove(n name) error {
	if err := unix.Unlinkat(d.fd, n.String(), 0); err != nil && err != unix.ENOENT {
		return fmt.Errorf("%s: %w", d.pathOf(n), err)
	}
	return nil
}

// names returns the names of all sockets in the directory, of all network namespaces. It skips
// other files.
func (d *dir) names() ([]name, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", d.fd))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.path, err)
	}
	var out []name
	for _, e := range entries {
		var n name
		if got, _ := fmt.Sscanf(e.Name(), "%d.%d.%d", &n.netns, &n.index, &n.queue); got == 3 &&
			n.String() == e.Name() {
			out = append(out, n)
		}
	}
	return out, nil
}

// List returns the pollers in the network namespace of the calling thread that were started with
// runDir. If runDir is "", it is DefaultRunDir. The pollers are sorted by key, and have the present
// names of their devices.
func List(runDir string) ([]device.PollerState, error) {
	d, err := openDir(runDir)
	if d == nil {
		return nil, err
	}
	defer d.close()
	return d.list()
}

func (d *dir) list() ([]device.PollerState, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var out []device.PollerState
	for _, n := range names {
		if n.netns != d.netns {
			continue
		}
		c, err := d.dial(n)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		s, err := c.status()
		c.Close()
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.Dev = cmp.Or(d.device(n.index), s.Dev)
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b device.PollerState) int { return strings.Compare(a.Key(), b.Key()) })
	return out, nil
}

// read returns the state of a poller, nil if it is not running.
func (d *dir) read(p device.Poller) (*device.PollerState, error) {
	c, err := d.find(p)
	if c == nil {
		return nil, err
	}
	defer c.Close()
	s, err := c.status()
	if s != nil {
		s.Dev = p.Dev
	}
	return s, err
}

// find connects to the poller p. If p is not running, it returns nil. If the device with p's device
// name is not the one for which p was started, find connects to the poller that was started for a
// device of that name.
func (d *dir) find(p device.Poller) (*conn, error) {
	own, err := d.name(p)
	there := err == nil
	if there {
		if c, err := d.dial(own); c != nil || err != nil {
			return c, err
		}
	} else if !errors.Is(err, unix.ENODEV) {
		return nil, err
	}
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if n.netns != d.netns || there && d.device(n.index) != "" {
			continue
		}
		c, err := d.dial(n)
		if err != nil {
			return nil, err
		}
		if c != nil && c.started.Key() == p.Key() {
			return c, nil
		}
		if c != nil {
			c.Close()
		}
	}
	return nil, nil
}

// conn is a connection to a poller. The kernel says which process is at the other end. That
// process's arguments say which poller it was started as.
type conn struct {
	*net.UnixConn
	name    name
	pid     int
	process int // pidfd
	started device.Poller
	in      *bufio.Reader
}

// Close also closes the pidfd.
func (c *conn) Close() error {
	if c.process >= 0 {
		unix.Close(c.process)
	}
	return c.UnixConn.Close()
}

// dial connects to the socket with a name. It returns nil if no process listens there, or if the
// process is not a poller.
func (d *dir) dial(n name) (*conn, error) {
	u, err := net.DialUnix("unix", nil, d.address(n))
	// EAGAIN means that the poller has not accepted earlier connections yet.
	for end := time.Now().Add(answerWithin); errors.Is(err, unix.EAGAIN) && time.Now().Before(end); u,
		err = net.DialUnix("unix", nil, d.address(n)) {
		time.Sleep(10 * time.Millisecond)
	}
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", d.pathOf(n), errors.Unwrap(err))
	}
	c := &conn{UnixConn: u, name: n, process: -1, in: bufio.NewReader(u)}
	ok, err := c.identify()
	if err == nil && ok {
		err = c.SetDeadline(time.Now().Add(answerWithin))
	}
	if err != nil || !ok {
		c.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.pathOf(n), err)
	}
	if !ok {
		return nil, nil
	}
	return c, nil
}

// identify finds the process at the other end. It reports whether the process is a poller of
// niclane's with that socket name.
//
// identify opens a pidfd before a request is sent. If the process answers after that, or keeps the
// connection open, it is alive. Its PID then has not been reused.
func (c *conn) identify() (bool, error) {
	cred, err := peer(c.UnixConn)
	if err != nil || cred.Uid != 0 {
		return false, err
	}
	if cred.Pid == 0 {
		return false, errors.New("its process is in a PID namespace that cannot be seen from this one")
	}
	c.pid = int(cred.Pid)
	if c.process, err = unix.PidfdOpen(c.pid, 0); errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process %d: %w", c.pid, err)
	}
	started, ok := startedAs(c.pid)
	c.started = started
	return ok && first(started) == c.name.queue, nil
}

// peer returns the credentials of the process at the other end of a connection. If that process
// listens, they are its credentials when it called listen.
func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return nil, cerr
	}
	return cred, err
}

// startedAs returns the poller that a process's arguments describe. If the process was not started
// as a poller, ok is false.
func startedAs(pid int) (p device.Poller, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(b), "\x00")
	if err != nil || len(args) < 3 || args[1] != Command {
		return p, false
	}
	return p, json.Unmarshal([]byte(args[2]), &p) == nil
}

// status asks for the poller's state. It returns nil if the connection ends without an answer,
// because then the process has ended.
func (c *conn) status() (*device.PollerState, error) {
	if _, err := fmt.Fprintln(c, "status"); err != nil {
		return nil, nil
	}
	line, err := c.in.ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &device.PollerState{Poller: c.started, PID: c.pid, Thread: c.pid, Doing: device.PollerHung}, nil
	}
	if err != nil {
		return nil, nil
	}
	var s device.PollerState
	if err := json.Unmarshal(line, &s); err != nil {
		return nil, fmt.Errorf("poller of process %d answers %.40q: %w", c.pid, line, err)
	}
	s.Poller, s.PID = c.started, c.pid
	return &s, nil
}

// SPDX-License-Identifier: Apache-2.0

package sockclass

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPasses bounds the passes over a group's processes. A pass that changes a socket causes
// another pass. More than a few passes happen only if an application keeps making sockets and
// sets their priority to 0.
const maxPasses = 32

// treat sets the priority of the sockets of g, and of the groups below g, to the value to if it is one
// of the values in from. It leaves out a group below g that has its own class with one of these old
// priorities.
func (c *Client) treat(g *group, from []uint32, to uint32) error {
	from = slices.DeleteFunc(slices.Clone(from), func(p uint32) bool { return p == to })
	if len(from) == 0 {
		return nil
	}
	// Programs that other CPUs started before the change have ended when membarrier returns
	// (synchronize_rcu). If membarrier fails (EINVAL with isolated nohz_full CPUs), they still
	// have some microseconds to end, during the work that follows here.
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	t := &treatment{client: c, from: from, to: to, seen: map[uint64]bool{}}
	if err := t.find(g.name); err != nil {
		return err
	}
	if err := t.queued(); err != nil {
		return err
	}
	for range maxPasses {
		changed, err := t.pass()
		if err != nil {
			return err
		}
		if changed == 0 && t.passes > 1 {
			break
		}
	}
	return nil
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL (membarrier(2)).
const membarrierGlobal = 1

// A treatment is one run of treat.
type treatment struct {
	client *Client
	from   []uint32
	to     uint32
	// groups are the groups to treat. left are the groups below them that are not treated.
	groups, left []string
	// seen holds the inode numbers of the sockets that were treated or checked.
	seen   map[uint64]bool
	passes int
}

// find fills in groups and left.
func (t *treatment) find(name string) error {
	t.groups = append(t.groups, name)
	entries, err := os.ReadDir(path.Join(t.client.v2, name))
	if err != nil {
		return ignoreGone(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below := path.Join(name, e.Name())
		class, err := t.client.class(below)
		if ignoreGone(err) != nil {
			return err
		}
		if class != nil && slices.Contains(t.from, class.Priority) {
			t.left = append(t.left, below)
			continue
		}
		if err := t.find(below); err != nil {
			return err
		}
	}
	return nil
}

// pass checks all sockets of all processes that are not in seen yet. It returns how many
// priorities it changed.
func (t *treatment) pass() (changed int, err error) {
	t.passes++
	for _, g := range t.groups {
		pids, err := t.client.processes(g)
		if err != nil {
			return changed, err
		}
		for batch := range slices.Chunk(pids, 64) {
			n, err := t.batch(g, batch)
			changed += n
			if err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// batch treats some processes of a group. Since a PID was listed, the kernel may have given it
// to another process. batch therefore opens a pidfd for each PID, which keeps the kernel from
// reusing the PID, and lists the group again. A PID that is still listed is that of the pidfd.
func (t *treatment) batch(g string, pids []int) (changed int, err error) {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		held[pid] = fd
	}
	still, err := t.client.processes(g)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		fd, ok := held[pid]
		if !ok || !slices.Contains(still, pid) {
			continue
		}
		n, err := t.process(pid, fd)
		changed += n
		if err != nil {
			return changed, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return changed, nil
}

// process treats the sockets of a process.
func (t *treatment) process(pid, pidfd int) (changed int, err error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, ignoreGone(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(path.Join(dir, e.Name()))
		if err != nil {
			if ignoreGone(err) != nil {
				return changed, err
			}
			continue
		}
		inode, ok := socketInode(target)
		if !ok || t.seen[inode] {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		done, err := t.socket(pidfd, fd, inode)
		if err != nil {
			return changed, fmt.Errorf("descriptor %d: %w", fd, err)
		}
		if done {
			changed++
		}
	}
	return changed, nil
}

// socketInode returns the inode number in the link of a socket's descriptor, "socket:[1234]".
func socketInode(link string) (uint64, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, "]")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// socket treats one socket. It holds its own descriptor of the socket during a few system calls.
// If the application closes its descriptor in that time, the connection ends only after them.
func (t *treatment) socket(pidfd, fd int, inode uint64) (changed bool, err error) {
	own, err := unix.PidfdGetfd(pidfd, fd, 0)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EBADF):
		return false, nil // the descriptor is gone
	case err != nil:
		return false, fmt.Errorf("pidfd_getfd: %w", err)
	}
	defer unix.Close(own)
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Ino != inode {
		return false, nil // the descriptor number belongs to another file now
	}
	t.seen[inode] = true
	domain, err := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return false, err
	}
	netns, err := unix.GetsockoptUint64(own, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil || netns != t.client.netns {
		return false, err
	}
	priority, err := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_PRIORITY)
	if err != nil || !slices.Contains(t.from, uint32(priority)) {
		return false, err
	}
	if err := unix.SetsockoptInt(own, unix.SOL_SOCKET, unix.SO_PRIORITY, int(int32(t.to))); err != nil {
		return false, fmt.Errorf("SO_PRIORITY: %w", err)
	}
	return true, nil
}

// processes returns the PIDs of a group's processes in this PID namespace, or none if the group
// is gone. In a threaded group, the kernel lists only threads.
func (c *Client) processes(name string) ([]int, error) {
	dir := path.Join(c.v2, name)
	b, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	threads := errors.Is(err, unix.EOPNOTSUPP)
	if threads {
		b, err = os.ReadFile(path.Join(dir, "cgroup.threads"))
	}
	if err != nil {
		return nil, ignoreGone(err)
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || pid == 0 { // 0: the process is in a PID namespace that is not below this one
			continue
		}
		if threads {
			if pid = threadGroup(pid); pid == 0 {
				continue
			}
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// threadGroup returns the PID of a thread's process, or 0 if the thread is gone.
func threadGroup(tid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if s, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(s))
			return pid
		}
	}
	return 0
}

// ignoreGone returns nil if err means that a process, descriptor or group has disappeared. It
// returns other errors unchanged.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

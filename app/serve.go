// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A holder is a process with a descriptor of a listener.
type holder struct{ pid, fd int }

// An epoll is an epoll instance that watches listeners, with the process and descriptor that have
// it.
type epoll struct {
	pid, fd int
	// inodes are the inode numbers of the listeners that it watches.
	inodes []uint64
}

// descriptors has the descriptors of an application that concern its listeners.
type descriptors struct {
	holders map[uint64][]holder // by inode of the listener
	epolls  []epoll
}

// find searches the descriptors of processes for listeners and for epoll instances that watch them.
// The keys of listeners are inode numbers. A process or descriptor that disappears during the
// search is left out.
func find(pids []int, listeners map[uint64]bool) descriptors {
	d := descriptors{holders: map[uint64][]holder{}}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid)
		entries, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue
		}
		for _, e := range entries {
			target, err := os.Readlink(path.Join(dir, "fd", e.Name()))
			fd, nerr := strconv.Atoi(e.Name())
			if err != nil || nerr != nil {
				continue
			}
			if inode, ok := socketInode(target); ok && listeners[inode] {
				d.holders[inode] = append(d.holders[inode], holder{pid, fd})
			}
			if target == "anon_inode:[eventpoll]" {
				if watched := watchedBy(path.Join(dir, "fdinfo", e.Name()), listeners); len(watched) > 0 {
					d.epolls = append(d.epolls, epoll{pid, fd, watched})
				}
			}
		}
	}
	return d
}

// socketInode returns the inode number from the link of a socket's descriptor, "socket:[1234]".
func socketInode(link string) (uint64, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n, err == nil
}

// watchedBy returns those of the sockets that an epoll instance watches, as inode numbers. It reads
// the instance's fdinfo (proc_pid_fdinfo(5)), which has lines such as
//
//	tfd:        5 events:       19 data: 7f0012345678  pos:0 ino:9a3f sdev:8
func watchedBy(fdinfo string, sockets map[uint64]bool) []uint64 {
	f, err := os.Open(fdinfo)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []uint64
	for in := bufio.NewScanner(f); in.Scan(); {
		if inode, ok := targetInode(in.Text()); ok && sockets[inode] {
			out = append(out, inode)
		}
	}
	return out
}

func targetInode(line string) (uint64, bool) {
	if !strings.HasPrefix(line, "tfd:") {
		return 0, false
	}
	_, rest, ok := strings.Cut(line, " ino:")
	if !ok {
		return 0, false
	}
	inode, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(inode, 16, 64)
	return n, err == nil
}

// A server is the process and the thread that accept the connections of a listener.
type server struct {
	pid int
	// tid is the thread that accepts the connections. It is 0 if any thread of the process may accept
	// them.
	tid int
	// why says why pid or tid is 0, if they are.
	why string
}

// waiting reads the threads' system calls several times: samples times, once every sampleEvery.
const (
	samples     = 20
	sampleEvery = 2 * time.Millisecond
)

// servers returns the server of each listener. A thread is the server in two cases. Either only one
// process watches the listener, and it has only that thread. Or each listener of the process has
// its own epoll instance, and only that thread waits there. In all other cases, the server's why is
// the reason.
func (d descriptors) servers() map[uint64]server {
	waits := map[int]map[int][]int{} // by PID: the IDs of the waiting threads, by epoll descriptor
	out := map[uint64]server{}
	for inode, es := range d.watchers() {
		pids := pidsOf(es)
		if len(pids) > 1 {
			out[inode] = server{why: fmt.Sprintf("processes %s all watch it", list(pids, ", "))}
			continue
		}
		pid := pids[0]
		tids := threads(pid)
		switch {
		case len(tids) == 0:
			out[inode] = server{why: "its process ended"}
		case len(tids) == 1:
			out[inode] = server{pid: pid, tid: tids[0]}
		case len(es) > 1:
			out[inode] = server{pid: pid, why: fmt.Sprintf("%d epoll instances of process %d watch it", len(es), pid)}
		case d.instances(pid) < 2:
			// Any thread may accept from a single instance, as in language runtimes with one poller.
			out[inode] = server{pid: pid, why: fmt.Sprintf("process %d has %d threads and one epoll instance for "+
				"its listeners: any of them can take its connections", pid, len(tids))}
		case len(es[0].inodes) > 1:
			out[inode] = server{pid: pid, why: fmt.Sprintf("process %d watches several listeners with one epoll "+
				"instance", pid)}
		default:
			if waits[pid] == nil {
				waits[pid] = waiting(pid, tids)
			}
			out[inode] = waiter(pid, es[0].fd, waits[pid])
		}
	}
	for inode, hs := range d.holders {
		if _, ok := out[inode]; !ok {
			out[inode] = server{why: fmt.Sprintf("no epoll instance of process %d watches it", hs[0].pid)}
		}
	}
	return out
}

// watchers returns, for each listener, the epoll instances that watch it.
func (d descriptors) watchers() map[uint64][]epoll {
	by := map[uint64][]epoll{}
	for _, e := range d.epolls {
		for _, inode := range e.inodes {
			by[inode] = append(by[inode], e)
		}
	}
	return by
}

func pidsOf(es []epoll) []int {
	var pids []int
	for _, e := range es {
		pids = append(pids, e.pid)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// instances returns the number of epoll instances with which a process watches listeners.
func (d descriptors) instances(pid int) int {
	n := 0
	for _, e := range d.epolls {
		if e.pid == pid {
			n++
		}
	}
	return n
}

// waiter returns the thread that waits at an epoll instance. No other thread must have been seen
// there, and it must not have been seen at another instance.
func waiter(pid, fd int, seen map[int][]int) server {
	at := seen[fd]
	switch len(at) {
	case 0:
		return server{pid: pid, why: fmt.Sprintf("no thread of process %d was seen waiting at epoll descriptor %d", pid,
			fd)}
	case 1:
		for other, tids := range seen {
			if other != fd && slices.Contains(tids, at[0]) {
				return server{pid: pid, why: fmt.Sprintf("thread %d waits at several epoll instances", at[0])}
			}
		}
		return server{pid: pid, tid: at[0]}
	}
	return server{pid: pid, why: fmt.Sprintf("threads %s all wait at one epoll instance", list(at, ", "))}
}

// waiting looks several times at which epoll descriptors the threads of a process wait. It returns
// the threads that it has seen at each descriptor.
func waiting(pid int, tids []int) map[int][]int {
	seen := map[int][]int{}
	for i := range samples {
		if i > 0 {
			time.Sleep(sampleEvery)
		}
		for _, tid := range tids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", pid, tid))
			if err != nil {
				continue
			}
			if fd, ok := epollOf(string(b)); ok && !slices.Contains(seen[fd], tid) {
				seen[fd] = append(seen[fd], tid)
			}
		}
	}
	for _, at := range seen {
		slices.Sort(at)
	}
	return seen
}

// epollOf returns the epoll descriptor at which a thread waits. text is the content of
// proc_pid_syscall(5). If the thread does not wait at one, ok is false. For a running thread, text
// has no system call number.
func epollOf(text string) (fd int, ok bool) {
	f := strings.Fields(text)
	if len(f) < 2 {
		return 0, false
	}
	nr, err := strconv.Atoi(f[0])
	if err != nil || !slices.Contains(epollWaits, nr) {
		return 0, false
	}
	n, err := strconv.ParseUint(f[1], 0, 64)
	return int(n), err == nil
}

// list formats numbers with a separator.
func list[N int | uint16](ns []N, separator string) string {
	s := make([]string, len(ns))
	for i, n := range ns {
		s[i] = strconv.Itoa(int(n))
	}
	return strings.Join(s, separator)
}

// processor returns the processor on which s runs. Its thread, or all threads of its process, must
// be able to run only there. Otherwise, cpu is unknown and why is the reason.
func (s server) processor() (cpu int, why string) {
	tids := []int{s.tid}
	if s.tid == 0 {
		if s.pid == 0 {
			return unknown, s.why
		}
		tids = threads(s.pid)
	}
	cpu = unknown
	for _, tid := range tids {
		cpus, err := affinity(tid)
		if gone(err) {
			continue
		}
		if err != nil {
			return unknown, err.Error()
		}
		switch {
		case len(cpus) == 1 && (cpu == unknown || cpu == cpus[0]):
			cpu = cpus[0]
		case s.tid == 0:
			return unknown, s.why
		default:
			return unknown, fmt.Sprintf("thread %d, which serves it, may run on %d processors", tid, len(cpus))
		}
	}
	if cpu == unknown {
		return unknown, "its process ended"
	}
	return cpu, ""
}

// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"strconv"
	"strings"
)

// A Worker is the thread that serves a connection, if it is the only one.
type Worker struct {
	PID, TID int
	// Comm is the command name of the process (proc_pid_comm(5)).
	Comm string
}

// Workers returns the thread that serves each connection. Keys are the inode numbers of the
// connections' sockets. The thread must be the only one of its process, or the only one that waits
// at the only epoll instance that watches the socket. Connections without such a thread are left
// out. Workers samples threads for up to 40 ms. It needs the right to read other processes'
// descriptors (CAP_SYS_PTRACE).
func Workers(inodes []uint64) (map[uint64]Worker, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	connections := map[uint64]bool{}
	for _, inode := range inodes {
		connections[inode] = inode != 0 // 0: not accepted yet
	}
	waits := map[int]map[int][]int{} // by PID: the IDs of the waiting threads, by epoll descriptor
	out := map[uint64]Worker{}
	for inode, es := range find(pids, connections).watchers() {
		if len(es) > 1 {
			continue
		}
		pid := es[0].pid
		tids := threads(pid)
		w := Worker{PID: pid}
		switch len(tids) {
		case 0:
			continue // the process ended
		case 1:
			w.TID = tids[0]
		default:
			if waits[pid] == nil {
				waits[pid] = waiting(pid, tids)
			}
			w.TID = waiter(pid, es[0].fd, waits[pid]).tid
		}
		if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil && w.TID != 0 {
			w.Comm = strings.TrimSuffix(string(comm), "\n")
			out[inode] = w
		}
	}
	return out, nil
}

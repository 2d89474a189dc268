// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// watchPIDs opens a pidfd for each new process in pids. It closes the pidfds of processes that
// are no longer in pids.
func (s *Source) watchPIDs(pids []int) (grown bool, err error) {
	for pid, fd := range s.pidfds {
		if !slices.Contains(pids, pid) {
			unix.Close(fd)
			delete(s.pidfds, pid)
		}
	}
	for _, pid := range pids {
		if _, ok := s.pidfds[pid]; ok {
			continue
		}
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			continue // a thread that is not a group leader (pidfd_open(2)): its end is not reported
		}
		grown = true
		if errors.Is(err, unix.ESRCH) {
			continue // it has just ended: grown makes the caller look again
		}
		if err != nil {
			return true, fmt.Errorf("process %d: %w", pid, err)
		}
		s.pidfds[pid] = fd
	}
	return grown, nil
}

// processEnded removes a process and returns the event of its end.
func (s *Source) processEnded(pid int) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, ok := s.pidfds[pid]
	if !ok {
		return nil
	}
	unix.Close(fd)
	delete(s.pidfds, pid)
	return []Event{{Source: "process", What: "ended", Detail: fmt.Sprint(pid)}}
}

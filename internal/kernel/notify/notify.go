// SPDX-License-Identifier: Apache-2.0

// Package notify reports changes in the kernel: links, traffic control and addresses
// (rtnetlink), ethtool's settings and NAPIs (generic netlink), devices that appear and
// disappear (uevents), writes to files and control groups that are made or removed (inotify),
// processes that end (pidfds). It reports what may have changed, not the new value: callers
// read that from the kernel. It changes nothing, does not poll periodically, and uses no CPU
// while nothing happens.
//
// It does not use the proc connector for processes. The connector wakes its listener for every
// fork of the host, and exists only in the initial network namespace
// (drivers/connector/cn_proc.c, CN_IDX_PROC in connector.c: init_net).
package notify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An Event is one notification.
type Event struct {
	// Source is "link", "tc", "address", "ethtool", "netdev", "uevent", "file", "directory"
	// or "process". It is "lost" if the kernel dropped notifications: anything may have
	// changed.
	Source string
	// What is the event in a word or two: "changed", "removed", "renamed".
	What string
	// Device is the interface's name, Index its number. They are "" and 0 if the event is
	// not about an interface, or the message does not name it.
	Device string
	Index  int
	// Detail is a path, a process or a qdisc.
	Detail string
}

// String returns the event in a few words.
func (e Event) String() string {
	s := e.Source + " " + e.What
	if e.Device != "" {
		s += " " + e.Device
	}
	if e.Detail != "" {
		s += " " + e.Detail
	}
	return s
}

// An Interest selects the events to report. The source drops all others.
type Interest struct {
	// Devices are names of interfaces, Indexes their numbers. Indexes may also contain the
	// numbers of earlier devices with these names.
	Devices []string
	Indexes []int
	// Files are files whose changes the source reports. For a file of /proc or /sys, it sees
	// only writes through the same mount.
	Files []string
	// Dirs are directories. The source reports entries in them that are made, removed, renamed
	// or written.
	Dirs []string
	// Births are directories that need not exist. The source reports when they, or their
	// parents, are made or removed.
	Births []string
	// PIDs are processes and kernel threads whose end the source reports.
	PIDs []int
}

// A Source reports the events of the network namespace of the thread that opened it.
type Source struct {
	events chan Event
	done   chan struct{} // closed by Close
	ended  chan struct{} // closed by the reader
	close  sync.Once

	route, genl, uevent, inotify, wake int
	family                             families

	mu       sync.Mutex // protects the fields below; the reader uses them too
	interest Interest
	watches  map[string]watch // inotify watches, by path
	pidfds   map[int]int      // by PID
	// qdiscs holds the last reported value of each qdisc, by interface and parent.
	qdiscs map[string]string
}

// Open subscribes to the kernel's notifications. It leaves out kinds that the kernel lacks.
func Open() (_ *Source, err error) {
	s := &Source{events: make(chan Event, 64), done: make(chan struct{}), ended: make(chan struct{}),
		route: -1, genl: -1, uevent: -1, inotify: -1, wake: -1, watches: map[string]watch{}, pidfds: map[int]int{},
		qdiscs: map[string]string{}}
	defer func() {
		if err != nil {
			s.closeAll()
		}
	}()
	if s.route, err = subscribe(unix.NETLINK_ROUTE, routeGroups...); err != nil {
		return nil, err
	}
	var groups []int
	if s.family, groups, err = findFamilies(); err != nil {
		return nil, err
	}
	if s.genl, err = subscribe(unix.NETLINK_GENERIC, groups...); err != nil {
		return nil, err
	}
	if s.uevent, err = subscribe(unix.NETLINK_KOBJECT_UEVENT, ueventGroup); err != nil {
		return nil, err
	}
	if s.inotify, err = unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC); err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	go s.read()
	return s, nil
}

// receiveBuffer is the size of a socket's buffer, in bytes. The buffer holds the notifications
// of an apply with some hundred classes. If it overflows, the source reports "lost".
const receiveBuffer = 1 << 20

// subscribe joins multicast groups of a netlink family.
func subscribe(family int, groups ...int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return -1, fmt.Errorf("netlink: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		// Only root can exceed the host's limit; other users get at most that limit.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}
	}
	for _, g := range groups {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("netlink family %d, groups %v: %w", family, groups, err)
	}
	return fd, nil
}

// Events returns the channel of events. It is closed when the source ends.
func (s *Source) Events() <-chan Event { return s.events }

// Watch sets what the source reports. grown is true if in contains something new: the source
// did not report its earlier events. A process in in that has ended also makes grown true.
// Watch ignores files and directories that do not exist.
func (s *Source) Watch(in Interest) (grown bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.interest
	s.interest = in
	grown = more(was.Devices, in.Devices) || more(was.Indexes, in.Indexes)
	files, err := s.watchFiles(in)
	if err != nil {
		return true, err
	}
	pids, err := s.watchPIDs(in.PIDs)
	if err != nil {
		return true, err
	}
	return grown || files || pids, s.kick()
}

// more reports whether now has an element that is not in was.
func more[T comparable](was, now []T) bool {
	return slices.ContainsFunc(now, func(x T) bool { return !slices.Contains(was, x) })
}

// kick wakes the reader, so that it polls the new descriptors. If a kick is lost, the reader
// may wait forever.
func (s *Source) kick() (err error) {
	for range 10 {
		if _, err = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err == nil {
			return nil
		}
	}
	if errors.Is(err, unix.EAGAIN) { // an earlier kick is still pending
		return nil
	}
	return os.NewSyscallError("write eventfd", err)
}

// Close ends the source.
func (s *Source) Close() error {
	s.close.Do(func() {
		close(s.done)
		s.mu.Lock()
		_ = s.kick() // a write to an eventfd does not fail
		s.mu.Unlock()
		<-s.ended
		s.closeAll()
	})
	return nil
}

func (s *Source) closeAll() {
	for _, fd := range []int{s.route, s.genl, s.uevent, s.inotify, s.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	for _, w := range s.watches {
		w.unpin()
	}
	for _, fd := range s.pidfds {
		unix.Close(fd)
	}
}

// read is the reader: one goroutine for all descriptors.
func (s *Source) read() {
	defer close(s.ended)
	defer close(s.events)
	buf := make([]byte, 64<<10)
	for {
		s.mu.Lock()
		pids := slices.Sorted(maps.Keys(s.pidfds))
		fds := make([]unix.PollFd, 0, 5+len(pids))
		for _, fd := range []int{s.wake, s.route, s.genl, s.uevent, s.inotify} {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		for _, pid := range pids {
			fds = append(fds, unix.PollFd{Fd: int32(s.pidfds[pid]), Events: unix.POLLIN})
		}
		s.mu.Unlock()
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return // one of the descriptors is invalid: a bug, which ends the events
		}
		select {
		case <-s.done:
			return
		default:
		}
		var events []Event
		for i, fd := range fds {
			if fd.Revents == 0 {
				continue
			}
			switch i {
			case 0:
				_, _ = unix.Read(s.wake, buf) // an EAGAIN does not matter
			case 1:
				events = append(events, s.drain(s.route, buf, s.routeEvents)...)
			case 2:
				events = append(events, s.drain(s.genl, buf, s.genlEvents)...)
			case 3:
				events = append(events, s.drain(s.uevent, buf, s.uevents)...)
			case 4:
				events = append(events, s.fileEvents(buf)...)
			default:
				events = append(events, s.processEnded(pids[i-5])...)
			}
		}
		told := map[Event]bool{} // each event once
		for _, e := range events {
			if told[e] {
				continue
			}
			told[e] = true
			select {
			case s.events <- e:
			case <-s.done:
				return
			}
		}
		// A wake-up costs more CPU time than an event. So the reader waits here, and then reads
		// several events at once. From a flood, it reads only a part.
		_, _ = unix.Poll(fds[:1], int(rest.Milliseconds()))
	}
}

// rest is the time between two reads.
const rest = 50 * time.Millisecond

// turn is the maximum number of datagrams that the reader takes from a socket between rests.
const turn = 128

// drain reads the datagrams of a netlink socket, at most turn of them.
func (s *Source) drain(fd int, buf []byte, parse func([]byte) []Event) []Event {
	var out []Event
	for range turn {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			out = append(out, Event{Source: "lost", What: "notifications"})
			continue
		case err != nil:
			return out // EAGAIN: no more datagrams
		case n > len(buf):
			out = append(out, Event{Source: "lost", What: "notifications"})
			continue
		}
		s.mu.Lock()
		out = append(out, parse(buf[:n])...)
		s.mu.Unlock()
	}
	return out
}

// of reports whether a device is of interest.
func (in Interest) of(name string, index int) bool {
	return index > 0 && slices.Contains(in.Indexes, index) || name != "" && slices.Contains(in.Devices, name)
}

// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A BusyPoll says how long an application polls the device's queues before it sleeps. niclane sets
// this on epoll instances by EPIOCSPARAMS (ioctl_eventpoll(2), Linux 6.9). On listeners and UDP
// sockets, it sets SO_BUSY_POLL (socket(7)), which connections inherit from their listener. The
// application needs no change, because niclane duplicates its descriptors (pidfd_getfd(2)).
type BusyPoll struct {
	// Usecs is the polling time in µs: 1 to 1,000,000.
	Usecs uint32 `json:"usecs"`
	// Budget is the largest number of packets that one poll takes: 1 to 64. The kernel limits drivers
	// to 64 (NAPI_POLL_WEIGHT).
	Budget uint16 `json:"budget"`
	// Prefer suppresses interrupts while the application polls. It needs a lane with "poller:
	// application", in which the NAPIs defer interrupts.
	Prefer bool `json:"prefer,omitempty"`
}

// Limits of a BusyPoll.
const (
	MaxBusyPoll       = time.Second
	MaxBusyPollBudget = 64
	// DefaultBusyPollBudget is the kernel's BUSY_POLL_BUDGET.
	DefaultBusyPollBudget = 8
)

// epollParams is struct epoll_params of linux/eventpoll.h.
type epollParams struct {
	usecs  uint32
	budget uint16
	prefer uint8
	_      uint8
}

func (b BusyPoll) params() epollParams {
	return epollParams{usecs: b.Usecs, budget: b.Budget, prefer: uint8(truth(b.Prefer))}
}

// A Busy says on how many descriptors the method set has changed busy polling.
type Busy struct {
	// Epolls and Sockets are the numbers of epoll instances and sockets that poll now. Own is the
	// number of descriptors on which the application had set busy polling itself. set does not change
	// these.
	Epolls  int `json:"epolls"`
	Sockets int `json:"sockets"`
	Own     int `json:"own,omitempty"`
	// NoEpoll is true if the kernel cannot set busy polling on epoll instances.
	NoEpoll bool `json:"noEpoll,omitempty"`
}

// set turns busy polling on or off on the descriptors of processes.
func (b BusyPoll) set(pids []int, on bool) (Busy, error) {
	s := busySetter{BusyPoll: b, on: on}
	var err error
	if s.idle, err = busyRead(); err != nil {
		return s.Busy, err
	}
	var errs []error
	for _, pid := range pids {
		if err := s.process(pid); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("process %d: busy polling: %w", pid, err))
		}
	}
	return s.Busy, errors.Join(errs...)
}

// busyRead returns net.core.busy_read: the value of SO_BUSY_POLL on a new socket. One value is
// valid in all network namespaces, but only the first namespace has the file. Without the file,
// busyRead returns 0, the likeliest value.
func busyRead() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/core/busy_read")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

type busySetter struct {
	BusyPoll
	Busy
	on   bool
	idle int // SO_BUSY_POLL of a new socket
}

func (s *busySetter) process(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	var errs []error
	for _, e := range entries {
		to, err := os.Readlink(dir + e.Name())
		n, nerr := strconv.Atoi(e.Name())
		if err != nil || nerr != nil {
			continue // the descriptor was closed meanwhile
		}
		var f func(fd int) error
		switch {
		case to == "anon_inode:[eventpoll]":
			f = s.epoll
		case strings.HasPrefix(to, "socket:["):
			f = s.socket
		default:
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, n, 0)
		if err != nil {
			if !errors.Is(err, unix.EBADF) {
				errs = append(errs, fmt.Errorf("descriptor %d: %w", n, err))
			}
			continue
		}
		// By now, descriptor number n may be another file. If it is of another kind, each call in f fails
		// and changes nothing.
		errs = append(errs, f(fd))
		unix.Close(fd)
	}
	return errors.Join(errs...)
}

func (s *busySetter) epoll(fd int) error {
	var now epollParams
	err := ioctl(fd, unix.EPIOCGPARAMS, unsafe.Pointer(&now))
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		s.NoEpoll = true // before Linux 6.9, or fd is no longer an epoll instance
		return nil
	}
	if err != nil {
		return fmt.Errorf("EPIOCGPARAMS: %w", err)
	}
	want, none := s.params(), epollParams{}
	if !s.on {
		want, none = none, want
	}
	switch now {
	case none:
		if err := ioctl(fd, unix.EPIOCSPARAMS, unsafe.Pointer(&want)); err != nil {
			return fmt.Errorf("EPIOCSPARAMS: %w", err)
		}
		s.Epolls++
	case want:
		s.Epolls++
	default:
		s.Own++
	}
	return nil
}

// socket sets busy polling on listeners and UDP sockets. It does not change existing connections:
// an application that waits for many connections uses an epoll instance, and function epoll sets
// that.
func (s *busySetter) socket(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return nil
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return nil
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || protocol != unix.IPPROTO_UDP && (protocol != unix.IPPROTO_TCP || listens == 0) {
		return nil
	}
	now, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err != nil {
		return fmt.Errorf("SO_BUSY_POLL: %w", err)
	}
	usecs, budget, prefer, idle := int(s.Usecs), int(s.Budget), truth(s.Prefer), s.idle
	if !s.on {
		usecs, budget, prefer, idle = s.idle, DefaultBusyPollBudget, 0, int(s.Usecs)
	}
	switch now {
	case usecs:
		s.Sockets++
		return nil
	case idle:
	default:
		s.Own++
		return nil
	}
	for _, o := range []struct {
		name   string
		option int
		value  int
	}{
		{"SO_BUSY_POLL_BUDGET", unix.SO_BUSY_POLL_BUDGET, budget},
		{"SO_PREFER_BUSY_POLL", unix.SO_PREFER_BUSY_POLL, prefer},
		{"SO_BUSY_POLL", unix.SO_BUSY_POLL, usecs},
	} {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o.option, o.value)
		if err == unix.ENOPROTOOPT && o.option != unix.SO_BUSY_POLL {
			continue // Linux before 5.11 lacks this option
		}
		if err != nil {
			return fmt.Errorf("%s to %d: %w", o.name, o.value, err)
		}
	}
	s.Sockets++
	return nil
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// busyPoll turns busy polling on for the first time. Later the keeper does it.
func (a *attachment) busyPoll() error {
	r := a.record
	if r.BusyPoll == nil {
		return nil
	}
	busy, err := r.BusyPoll.set(a.pids, true)
	if err != nil {
		return err
	}
	for _, n := range busy.notes() {
		a.notef("%s", n)
	}
	return nil
}

func (b Busy) notes() []string {
	notes := []string{fmt.Sprintf("busy polling: %d epoll instances, %d listeners and UDP sockets; niclane "+
		"looks for new ones", b.Epolls, b.Sockets)}
	if b.Own > 0 {
		notes = append(notes, fmt.Sprintf("busy polling: %d have parameters of the application's own, which stay",
			b.Own))
	}
	if b.NoEpoll {
		notes = append(notes, "busy polling: this kernel has no parameters of epoll instances (Linux 6.9 has): "+
			"net.core.busy_poll applies to them, for the whole host")
	}
	return notes
}

// stopBusyPoll turns busy polling off on the descriptors that niclane set.
func (r *Record) stopBusyPoll() error {
	if r.BusyPoll == nil || len(r.Groups) == 0 {
		return nil
	}
	pids, err := r.Groups[0].processes()
	if err != nil {
		return err
	}
	_, err = r.BusyPoll.set(pids, false)
	return err
}

// A busyFollower sets busy polling on epoll instances and sockets that the application opens later.
type busyFollower struct {
	pids   []int
	looked time.Time
}

// tick sets busy polling on all descriptors, if the processes have changed or if lookAgain has
// passed. A descriptor that the application has just opened polls only after the next tick.
func (f *busyFollower) tick(r *Record) {
	pids, err := r.Groups[0].processes()
	if err != nil || slices.Equal(pids, f.pids) && time.Since(f.looked) < lookAgain {
		return
	}
	f.pids, f.looked = pids, time.Now()
	_, _ = r.BusyPoll.set(pids, true) // the next call tries again
}

// SPDX-License-Identifier: Apache-2.0

// Package iouring makes the kernel busy-poll NAPIs in a thread of niclane. It uses an io_uring
// without requests, to which the caller adds NAPI IDs (static tracking, Linux 6.13,
// 6bf90bd8c58a). It needs no privilege and no socket on the device. It does not check NAPI
// IDs: the kernel accepts a wrong ID silently and polls nothing.
package iouring

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of linux/io_uring.h.
const (
	registerNAPI = 27 // IORING_REGISTER_NAPI

	napiRegister = 0 // IO_URING_NAPI_REGISTER_OP
	napiAdd      = 1 // IO_URING_NAPI_STATIC_ADD_ID
	napiDelete   = 2 // IO_URING_NAPI_STATIC_DEL_ID

	trackingStatic = 1 // IO_URING_NAPI_TRACKING_STATIC

	enterGetEvents = 1 << 0 // IORING_ENTER_GETEVENTS
	enterExtArg    = 1 << 3 // IORING_ENTER_EXT_ARG
)

// MaxBusy is the longest time that New accepts as busy. It is the kernel's own limit since
// April 2026.
const MaxBusy = 10 * time.Millisecond

// napi is struct io_uring_napi.
type napi struct {
	busyPollTo uint32 // µs
	preferBusy uint8
	opcode     uint8
	_          [2]uint8
	opParam    uint32
	_          uint32
}

// params is struct io_uring_params; the package uses no field of it.
type params [120]byte

// getEventsArg is struct io_uring_getevents_arg.
type getEventsArg struct {
	sigmask     uint64
	sigmaskSize uint32
	minWait     uint32 // µs
	timespec    uint64
}

// A Ring polls NAPIs. One thread at a time may use it.
type Ring struct {
	fd int

	// Arguments of Poll, which the kernel reads by address.
	pin     runtime.Pinner
	arg     *getEventsArg
	timeout *unix.Timespec
}

// New makes a ring. Each of its polls takes the time busy, from 1 µs to MaxBusy. Between polls,
// the NAPIs' interrupts stay off as their configuration says (prefer_busy_poll). Errors are
// those of io_uring_setup(2) and io_uring_register(2): ENOSYS if the kernel has no io_uring,
// EPERM if the sysctl kernel.io_uring_disabled forbids it, EINVAL before Linux 6.13.
func New(busy time.Duration) (*Ring, error) {
	if busy < time.Microsecond || busy > MaxBusy {
		return nil, fmt.Errorf("io_uring: busy polling for %v is not from 1µs to %v", busy, MaxBusy)
	}
	var p params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, &SetupError{errno}
	}
	unix.CloseOnExec(int(fd))
	r := &Ring{fd: int(fd), arg: &getEventsArg{}, timeout: &unix.Timespec{}}
	if err := r.register(napi{
		busyPollTo: uint32(busy.Microseconds()), preferBusy: 1, opcode: napiRegister, opParam: trackingStatic,
	}); err != nil {
		unix.Close(r.fd)
		return nil, fmt.Errorf("io_uring: static tracking of NAPIs: %w", err)
	}
	r.pin.Pin(r.arg)
	r.pin.Pin(r.timeout)
	*r.timeout = unix.NsecToTimespec(busy.Nanoseconds())
	r.arg.timespec = uint64(uintptr(unsafe.Pointer(r.timeout)))
	return r, nil
}

// A SetupError is an error of io_uring_setup(2): the kernel makes no ring at all.
type SetupError struct{ Errno unix.Errno }

// Error implements error.
func (e *SetupError) Error() string {
	if e.Errno == unix.EPERM {
		return "io_uring_setup: " + e.Errno.Error() + " (sysctl kernel.io_uring_disabled)"
	}
	return "io_uring_setup: " + e.Errno.Error()
}

// Unwrap returns the errno.
func (e *SetupError) Unwrap() error { return e.Errno }

func (r *Ring) register(n napi) error {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerNAPI, uintptr(unsafe.Pointer(&n)),
		1, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Add adds a NAPI to those that the ring polls. The caller makes sure that a NAPI with that ID
// exists. It is no error if the ring has the NAPI already.
func (r *Ring) Add(id uint32) error {
	if err := r.register(napi{opcode: napiAdd, opParam: id}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("io_uring: add NAPI %d: %w", id, err)
	}
	return nil
}

// Remove removes a NAPI from those that the ring polls. It is no error if the ring does not
// have the NAPI.
func (r *Ring) Remove(id uint32) error {
	if err := r.register(napi{opcode: napiDelete, opParam: id}); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("io_uring: remove NAPI %d: %w", id, err)
	}
	return nil
}

// Poll polls the NAPIs in turn, at least once each. It ends after the ring's busy time or at a
// signal. With only one NAPI, it also ends when another task needs the CPU. Go's scheduler does
// not know that Poll blocks, so other goroutines need a GOMAXPROCS above 1.
func (r *Ring) Poll() error {
	_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1,
		enterGetEvents|enterExtArg, uintptr(unsafe.Pointer(r.arg)), unsafe.Sizeof(*r.arg))
	switch errno {
	case 0, unix.ETIME, unix.EINTR:
		return nil
	}
	return fmt.Errorf("io_uring_enter: %w", errno)
}

// Close frees the ring. A poll that is running ends first.
func (r *Ring) Close() error {
	r.pin.Unpin()
	return unix.Close(r.fd)
}

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The following functions make raw system calls, without the Go runtime's book-keeping for calls that
// block. The thread thus keeps its P of the Go scheduler, and need not wait for one after a call.

func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), e
}

// epollCtl and closeSocket do not block, so the scheduler need not be informed.
func epollCtl(epfd, op, fd int, ev *unix.EpollEvent) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(ev)), 0, 0); e != 0 {
		return e
	}
	return nil
}

func closeSocket(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// drop receives up to n bytes without copying them: TCP's MSG_TRUNC, tcp(7).
func drop(fd int, n int64) (int, unix.Errno) {
	r, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	return int(r), e
}

func send(fd int, b []byte) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

// wait calls epoll_pwait2(2), new in Linux 5.11, whose timeout is in ns.
func wait(epfd int, events []unix.EpollEvent, ns int64) (int, unix.Errno) {
	ts := unix.NsecToTimespec(max(ns, 0))
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	return int(n), e
}

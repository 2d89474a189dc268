// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
)

// IORING_REGISTER_NAPI of linux/io_uring.h and its struct io_uring_napi.
const registerNAPI = 27

type ioUringNAPI struct {
	busyPollTo uint32 // µs
	preferBusy uint8
	opcode     uint8
	_          [2]uint8
	opParam    uint32
	_          uint32
}

// ioUringParams is struct io_uring_params, 120 bytes; nothing of it is used.
type ioUringParams [120]byte

// probeIoUringNAPI makes a ring and asks it for static tracking of NAPIs
// (Linux 6.13, 6bf90bd8c58a). Before, the fields were reserved: EINVAL.
func probeIoUringNAPI() device.Finding {
	var p ioUringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		f := device.Finding{Answer: device.Unknown, Why: fmt.Sprintf("io_uring_setup: %v", errno)}
		if errno == unix.ENOSYS {
			f.Answer = device.No
		}
		return f
	}
	defer unix.Close(int(fd))
	napi := ioUringNAPI{opParam: 1} // IO_URING_NAPI_REGISTER_OP, IO_URING_NAPI_TRACKING_STATIC
	_, _, errno = unix.Syscall6(unix.SYS_IO_URING_REGISTER, fd, registerNAPI, uintptr(unsafe.Pointer(&napi)), 1, 0, 0)
	switch {
	case errno == 0:
		return device.Finding{Answer: device.Yes, Why: "a ring took static tracking"}
	case errors.Is(errno, unix.EINVAL):
		return device.Finding{Answer: device.No, Why: "IORING_REGISTER_NAPI with static tracking: " + errno.Error() + " (Linux 6.13)"}
	}
	return device.Finding{Answer: device.Unknown, Why: "IORING_REGISTER_NAPI: " + errno.Error()}
}

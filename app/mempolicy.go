// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func setMempolicy(mode int, mask []uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(unsafe.Pointer(&mask[0])),
		uintptr(len(mask)*64))
	runtime.KeepAlive(mask)
	if errno != 0 {
		return fmt.Errorf("set_mempolicy: %w", errno)
	}
	return nil
}

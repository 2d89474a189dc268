// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package app

import "golang.org/x/sys/unix"

// epollWaits are the system calls that wait on an epoll instance.
var epollWaits = []int{unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2}

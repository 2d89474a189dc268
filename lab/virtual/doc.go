// SPDX-License-Identifier: Apache-2.0

// Package virtual runs a program in virtual time: in a guest whose clock stands still while
// programs and the kernel work, and jumps to the next timer when all of them sleep. What is left of
// a latency is queueing and transmission, exact on the noisiest machine.
//
// The guest is user-mode Linux with time travel (time-travel=inf-cpu), a process of the caller's
// user. It needs no root, no KVM, and no device of the host. It sees the host's files below an
// overlay: what it writes is gone with it, except in the directories of Config.Writable.
// tools/virtual-kernel builds its kernel; docs/virtual.md says what its figures mean.
package virtual

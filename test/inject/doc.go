// SPDX-License-Identifier: Apache-2.0

// Package inject makes system calls of apply, rollback, the guard process and watch fail on the
// real kernel, one at a time. After the next rollback, it compares the machine with its state at
// the start. go test tries a few calls of each command. make inject tries all, which takes hours,
// and prints a table.
package inject

// SPDX-License-Identifier: Apache-2.0

// Package inject lets system calls of apply, rollback, the guard process and watch fail on the
// real kernel, one at a time. After the next rollback it compares the machine with its state at
// the start. go test runs a few cases of each; make inject runs all, which takes hours, and
// prints a table.
package inject

// SPDX-License-Identifier: Apache-2.0

// Package inject has system calls of apply, rollback, the guardian and watch fail, one
// at a time, on the real kernel, and compares the machine after the next rollback
// with what it was at the start. go test runs a few of all; make inject runs all,
// which takes hours, and prints a table.
package inject

// SPDX-License-Identifier: Apache-2.0

package thread

import _ "unsafe" // for go:linkname

// Hold keeps the Go scheduler from taking the processor (P) of the calling
// goroutine, which is locked to its thread, until Release.
//
// Every 10 ms the runtime asks a goroutine that has not stopped by itself to
// make way (sysmon, retake() and preemptone() in runtime/proc.go); system calls
// that bypass the runtime do not count as stopping. A goroutine that is locked
// to its thread then hands its P to another thread and waits for that one to
// hand it back (stoplockedm(), startlockedm()): two futexes and, since the other
// thread has no real-time class, as long as the host lets it wait. Seen with
// SCHED_FIFO beside 15 runnable threads: 3 to 12 ms, a hundred times a second
// the chance of it.
//
// In between the goroutine must not block in any way that the runtime knows:
// no channel, contended mutex or sleep, and no system call but raw ones, after
// which the runtime may have given its P away; it ends the process if one does
// ("schedule: holding locks"). A garbage collection
// that begins meanwhile, and with it everybody else, waits for Release: the
// collector must be off.
func Hold() { procPin() }

// Release ends Hold. The calls may be nested.
func Release() { procUnpin() }

// Kept for others by the runtime, with this signature (go.dev/issue/67401).

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

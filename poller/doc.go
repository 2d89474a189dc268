// SPDX-License-Identifier: Apache-2.0

// Package poller busy-polls NAPIs from niclane's own processes, which own no socket on the
// device. It uses static NAPI tracking of io_uring (Linux 6.13). Each device.Poller is one
// process with one polling thread, for one or more receive queues. The thread sleeps when no
// packet has come for its configured timeout. The next packet wakes it; softirq handles that
// packet.
//
// The process answers on a Unix socket in RUNDIR/pollers, a directory of mode 0700. It is the
// only record of itself: a socket that no process has open does not count, and the next Write
// removes it. The kernel's peer credentials identify the process, and its arguments tell what
// it was started as. The package trusts no answer for either.
//
// After its set-up the process runs as nobody, or as its own user if it may not change. It has
// no capabilities, and can make only the system calls that it needs.
//
// The package refuses NAPIs that the kernel does not list, and queues that another of its
// pollers has. It always uses a separate process, because everything else in a polling
// process waits.
//
// The package changes no NAPI configuration. The plan writes gro-flush-timeout, which limits
// how long packets wait after a poller is killed: softirq then polls.
package poller

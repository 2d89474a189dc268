// SPDX-License-Identifier: Apache-2.0

// Package poller busy-polls NAPIs from processes of niclane's own, which own
// no socket on the device: static NAPI tracking of io_uring (Linux 6.13). Each
// device.Poller is one process with one thread that polls, for one receive
// queue or several. The thread sleeps when no packet has come for as long as
// its configuration says, and the next packet wakes it: softirq takes that one.
//
// The process answers on a Unix socket in RUNDIR/pollers, a directory of mode 0700,
// and is the only record of itself: a socket that no process has open is as none, and
// the next Write removes it. Who listens on a socket is what the kernel says of the
// peer, and what it was started as is in its arguments: neither is taken from an
// answer. After it is set up the process runs as nobody (as who it is, where it may not
// become nobody), without capabilities, and can make only the system calls that it
// needs.
//
// The package refuses NAPIs that the kernel does not list, queues that another
// of its pollers has, and to poll from a process that is not alone: everything
// but the polling thread waits.
//
// It sets no NAPI's configuration. What a plan writes beside it (gro-flush-timeout)
// bounds what packets wait if the poller is killed: then softirq polls.
package poller

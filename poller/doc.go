// SPDX-License-Identifier: Apache-2.0

// Package poller busy-polls NAPIs from processes of niclane, which have no socket on the device. It
// uses static NAPI tracking of io_uring (Linux 6.13). Each device.Poller is one process with one
// polling thread, for one or more receive queues. The thread sleeps if no packet has come for its
// configured timeout. The next packet wakes the thread, and softirq handles that packet.
//
// The process answers on a Unix socket in RUNDIR/pollers, a directory of mode 0700. This socket is
// the only record of the process. A socket on which no process listens does not count, and the next
// Write removes it. The kernel's peer credentials say which process listens, and the arguments of
// that process say which poller it was started as. The package takes neither from the answer.
//
// After its set-up, the process runs as nobody, or as its own user if it may not change it. It has
// no capabilities, and can make only the system calls that it needs.
//
// The package refuses NAPIs that the kernel does not list, and queues that another of its pollers
// already polls. It always polls in a separate process, because all else in a polling process has
// to wait.
//
// The package does not change the configuration of NAPIs. If a poller is killed, packets wait for
// softirq, at most for the gro-flush-timeout that the plan writes.
package poller

// SPDX-License-Identifier: Apache-2.0

// Package poller busy-polls NAPIs from processes of niclane, which have no socket on the device. It
// uses static NAPI tracking of io_uring (Linux 6.13). Each device.Poller is one process with one
// polling thread, for one or more receive queues. If no packet has come for the configured timeout,
// the thread sleeps. The next packet wakes the thread; softirq handles that packet.
//
// The process answers on a Unix socket in RUNDIR/pollers, a directory of mode 0700. This socket is
// the only record of the process. A socket on which no process listens does not count, and the next
// Write removes it. The kernel says which process listens (peer credentials). The arguments of that
// process say which poller it is. The package never takes these two facts from the process's
// answer.
//
// After its set-up, the process runs as nobody. If it may not change its user, it keeps it. It has
// no capabilities, and can make only the system calls that it needs.
//
// The package refuses NAPIs that the kernel does not list, and queues that another of its pollers
// already polls. A poller always has a process of its own, because other work in a polling process
// would have to wait.
//
// The package does not change the configuration of NAPIs. If a poller is killed, softirq polls in
// its place. A packet then waits at most for the gro-flush-timeout, which the plan has set.
package poller

// SPDX-License-Identifier: Apache-2.0

// Package run executes an experiment. It starts the hosts, starts the server and proves that it
// answers, fills it, and measures every variant at every load point in interleaved repeats. It
// proves from the server's own counters that the workload was what the file says. At the end it
// restores everything.
//
// An interrupt, a failure or the file's time limit costs only the window in progress. The
// result keeps the windows measured until then, marked partial with the phase and the reason.
//
// A run takes place on a Site: the hosts of package lab on this machine, or machines with
// agents (package agent). Run refuses a workload that the server's counters do not confirm.
package run

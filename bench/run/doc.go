// SPDX-License-Identifier: Apache-2.0

// Package run carries an experiment out: it raises the hosts, starts the server
// and proves that it answers, fills it, measures every variant at every load
// point in interleaved repeats, proves from the server's own counters that the
// workload was what the file says, and puts everything back.
//
// Whatever ends a run, an interrupt, a failure, the file's time limit, costs
// what is under way and nothing else: the windows measured until then are kept,
// marked partial with the phase and the reason.
//
// Where it runs is a Site: package lab's hosts on this machine, or machines
// with agents, package agent. It refuses a workload that the server's counters
// do not confirm.
package run

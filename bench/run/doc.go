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
// It refuses experiments on hosts with agents: these are in the file's language
// and not here yet.
package run

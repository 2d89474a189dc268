// SPDX-License-Identifier: Apache-2.0

// Package simulate turns a lanes file into an experiment for virtual time, and the experiment's
// result into an answer: what would the file do to queueing on a host?
//
// The file belongs to another machine. Make maps it onto the lab's card: the numbers of queues, the
// rate of the link, rates, ranks, ports and addresses stay. What a lab does not have (processors,
// pollers, moderation, several devices) is left out, and a note names each key that is.
//
// All lanes are asked in the same window, each by a probe (experiment.yaml(5)), so that they
// compete as on the host. One run for each lane would find the queues of the others empty.
//
// The package refuses files that the lab cannot hold. It says for each lane that cannot be asked
// why. It measures nothing itself: package bench/run does.
package simulate

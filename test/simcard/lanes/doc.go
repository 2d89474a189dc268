// SPDX-License-Identifier: Apache-2.0

// Package lanes tests niclane on the simulated card in a guest. A lanes file is applied, packets
// must arrive in the right queues by the card's counters, and rollback must restore the earlier
// state. go run ./test/simcard/run runs the tests.
package lanes

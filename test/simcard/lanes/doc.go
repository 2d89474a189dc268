// SPDX-License-Identifier: Apache-2.0

// Package lanes tests niclane on the simulated card, in a guest: from a lanes file to packets
// in the right queues, as the card counts them, and back to the earlier state. go run
// ./test/simcard/run runs it.
package lanes

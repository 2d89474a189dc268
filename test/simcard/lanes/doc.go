// SPDX-License-Identifier: Apache-2.0

// Package lanes tests niclane on the simulated card, in a guest: from a lanes
// file to packets in the queues that they belong to, as the card itself counts
// them, and back to what was there before. go run ./test/simcard/run runs it.
package lanes

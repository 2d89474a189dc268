// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the tests of the simulated card: that it obeys on
// the wire and in its counters what ip, tc, ethtool and netlink program. They
// load a kernel module, so they run in guests only (test/simcard/run); without
// NICLANE_SIMCARD, which names the module, all of them are skipped.
package conformance

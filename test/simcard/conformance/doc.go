// SPDX-License-Identifier: Apache-2.0

// Package conformance tests the simulated card: on the wire and in its counters, it must obey
// the settings of ip, tc, ethtool and netlink. The tests load a kernel module, so they run only
// in guests (test/simcard/run). Without NICLANE_SIMCARD, which names the module, they are
// skipped.
package conformance

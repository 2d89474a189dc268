// SPDX-License-Identifier: Apache-2.0

// Package conformance tests the simulated card. What it does on the wire, and what it counts, must
// follow the settings made with ip, tc, ethtool and netlink. The tests load a kernel module, so
// they run only in guests (test/simcard/run). They are skipped unless NICLANE_SIMCARD has the path
// of the module.
package conformance

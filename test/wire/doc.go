// SPDX-License-Identifier: Apache-2.0

// Package wire compares niclane's requests to the kernel, by meaning, with those of adqsetup
// 2.0.2 for the same file. It also compares them with the requests of tc(8) and ethtool(8) for
// the command lines in niclane's plan. It consists of tests only.
//
// testdata/NAME.conf is a file of adqsetup's, and NAME.adqsetup the requests of adqsetup for it
// (make record-wire). NAME.compared is the comparison: "=" both, "-" adqsetup only, "+" niclane
// only, each difference with its reason.
package wire

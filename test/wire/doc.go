// SPDX-License-Identifier: Apache-2.0

// Package wire compares, by meaning, what niclane asks the kernel for with what
// adqsetup 2.0.2 asks for to set up the same file, and with what tc(8) and
// ethtool(8) send for the command lines that niclane's plan shows. Its tests are all that there is.
//
// testdata/NAME.conf is a file of adqsetup's, NAME.adqsetup what adqsetup sent for
// it (make record-wire), and NAME.compared the comparison: "=" both, "-" adqsetup
// only, "+" niclane only, each difference with its reason.
package wire

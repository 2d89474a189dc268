// SPDX-License-Identifier: Apache-2.0

// Package wire has only tests. It compares the requests that niclane sends to the kernel with those
// of adqsetup 2.0.2 for the same file, by what they mean. It also compares niclane's requests with
// those of tc(8) and ethtool(8) when these run the command lines in niclane's plan.
//
// testdata/NAME.conf is a file for adqsetup, and NAME.adqsetup has the requests that adqsetup makes
// for it (make record-wire). NAME.compared is the comparison. A line begins with "=" if both make a
// request, with "-" if only adqsetup does, and with "+" if only niclane does. Each difference has
// its reason.
package wire

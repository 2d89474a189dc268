// SPDX-License-Identifier: Apache-2.0

// Package refresh is the consolidation arithmetic of server vendors: how many
// racks, servers and watts one kind of server needs where another kind did the
// work before. It is no measurement. What goes in is measured, by niclane or by
// the paper of Varnish Software and Intel (papers' Table 2), and every rule and
// assumption is part of what comes out.
package refresh

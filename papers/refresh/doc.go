// SPDX-License-Identifier: Apache-2.0

// Package refresh computes the consolidation that server vendors advertise: how many racks,
// servers and watts one kind of server needs to replace another kind. It measures nothing. Its
// inputs are measured by niclane or come from the paper of Varnish Software and Intel (Table 2
// in package papers). The output contains every rule and assumption.
package refresh

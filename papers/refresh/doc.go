// SPDX-License-Identifier: Apache-2.0

// Package refresh computes a consolidation as server vendors advertise it: how many racks, servers
// and watts one kind of server needs to replace another kind. It measures nothing. Its inputs come
// from niclane's measurements, or from the paper of Varnish Software and Intel (Table 2 in package
// papers). The output states every rule and assumption.
package refresh

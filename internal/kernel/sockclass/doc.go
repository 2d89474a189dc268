// SPDX-License-Identifier: Apache-2.0

// Package sockclass reads and writes device.CgroupClass objects: it gives the sockets of a
// control group (version 2) a priority that names an HTB class. Two eBPF programs on the group
// set it on new sockets. For existing sockets, the package sets it once, through the
// descriptors of their processes and by a TCP iterator.
//
// Nothing is pinned and no link is held: the programs stay attached when the process ends. The
// package finds them again by name and by their map, which holds the class. Foreign programs on
// the group stay, in their order.
//
// It changes only a priority that no other program chose: 0, that of the group above, and its
// own. If a socket has any other priority, the application has chosen it, and it stays. Sockets
// of other network namespaces, and sockets that are neither IPv4 nor IPv6, also stay as they
// are. The package moves no process and makes no group.
//
// A class does not reach these packets (TestLimits); classify them by flow:
//   - connections that a listener of another group accepts, which belong to that group;
//   - a socket whose application sets IP_TOS, which sets the priority too;
//   - IPv4 datagrams with IP_TOS as ancillary data, which sets their priority (QUIC servers do
//     this for ECN).
package sockclass

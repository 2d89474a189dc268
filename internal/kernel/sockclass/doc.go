// SPDX-License-Identifier: Apache-2.0

// Package sockclass reads and writes device.CgroupClass objects: it gives the
// sockets of a control group (version 2) a priority that names an HTB class.
// Two eBPF programs on the group do it for sockets to come; those that exist
// are treated once, through their processes' descriptors and by a TCP iterator.
//
// Nothing is pinned and no link is held: the programs stay attached when the
// process ends, and are found again by name and by their map, which holds the
// class. Programs of others on the group stay, in their order.
//
// It only ever exchanges priorities that nobody else chose: 0, that of the
// group above, and its own. A socket with another priority is the
// application's and left alone, and so are sockets of other network
// namespaces, and those that are neither IPv4 nor IPv6. It moves no process
// and makes no group.
//
// What a class does not reach (TestLimits): connections accepted by a listener
// that was made in another group, because they belong to that group; a socket
// whose application sets IP_TOS, which sets the priority too; and IPv4
// datagrams sent with IP_TOS as ancillary data, as QUIC servers do for ECN,
// whose priority follows from it. Classify those by flow.
package sockclass

// SPDX-License-Identifier: Apache-2.0

// Package emucard is the lab's emulated card: the eBPF programs that act as its steering
// hardware, and the client with which niclane reads and writes its RSS contexts, rules and
// counters.
//
// The card's state is in BPF maps pinned under Root, in one directory per card, named by the
// MAC address of its port. So niclane finds a card from inside the network namespace of the
// system under test, like a real one. A card refuses what the kernel refuses for real cards:
// deleting a context in use, a table with queues that do not exist, a second rule with the same
// location or match. It does not emulate channels, coalescing or rings: those are veth's. It
// keeps no state over a reboot.
package emucard

// SPDX-License-Identifier: Apache-2.0

// Package emucard is the lab's emulated card: the eBPF programs that are its
// steering hardware, and the client with which niclane reads and writes its
// RSS contexts, rules and counters.
//
// The card's state lives in BPF maps pinned under Root, a directory per card
// named by the MAC address of its port, so that niclane finds a card from
// inside the network namespace of the system under test, as it would find a
// real one. A card refuses what the kernel refuses for real ones: a context in
// use is not deleted, a table names only queues that exist, a location and a
// match are taken once. It does not emulate channels, coalescing or rings:
// those of veth are what they are, and it keeps no state over a reboot.
package emucard

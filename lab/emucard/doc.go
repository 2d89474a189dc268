// SPDX-License-Identifier: Apache-2.0

// Package emucard is the emulated card of the lab. Its eBPF programs act as the card's steering
// hardware. Its client reads and writes the card's RSS contexts, rules and counters.
//
// The card's state is in BPF maps that are pinned under Root. Each card has a directory, which is
// named by the MAC address of its port. So niclane finds the card from inside the network namespace
// of the system under test, as it finds a real one. A card refuses what the kernel refuses for real
// cards: to delete a context in use, a table with queues that do not exist, and a second rule with
// the same location or match. It does not emulate channels, coalescing or rings; these are those of
// veth. Its state is lost at a reboot.
package emucard

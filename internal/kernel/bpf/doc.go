// SPDX-License-Identifier: Apache-2.0

// Package bpf holds niclane's eBPF programs, attaches them, and reads and
// writes what their maps hold: device.Filter and device.FilterEntry objects, a
// classifier at clsact of what leaves; device.XDP, CPUQueue, CPUThread, CPULane
// and XDPEntry objects, a program in a device's XDP slot that steers what
// arrives to processors. Nothing is pinned: what is attached leads to its
// program, the program to its maps. The programs drop and change no packet, and
// what they do not know passes. Programs of others are named, never replaced or
// removed.
package bpf

// SPDX-License-Identifier: Apache-2.0

// Package bpf holds niclane's eBPF programs and reads and writes
// device.Filter and device.FilterEntry objects: a program attached to clsact
// by cls_bpf, and the entries in its map. Nothing is pinned: an attached filter
// leads to its program, the program to its maps. The programs classify; they
// never drop, change or redirect a packet, and later filters of others still
// see it. Programs of others are listed, never touched.
package bpf

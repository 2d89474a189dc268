// SPDX-License-Identifier: Apache-2.0

// Package bpf holds niclane's eBPF programs, attaches them, and reads and writes their
// maps. A classifier at clsact finds the lanes of packets that leave (device.Filter,
// device.FilterEntry). A program in a device's XDP slot steers received packets to CPUs
// (device.XDP, CPUQueue, CPUThread, CPULane, XDPEntry). Nothing is pinned: the package
// finds a program by its attachment, and the program's maps by the program. The programs
// drop and change no packet, and packets that match nothing pass. The package reports
// foreign programs by their names. It never replaces one, and removes one only if the
// caller names it.
package bpf

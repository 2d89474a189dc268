// SPDX-License-Identifier: Apache-2.0

// Package sockiter lists TCP sockets with what socket diagnostics
// (sock_diag(7)) leave out: the NAPI, processor and receive queue that served
// each last, its control group, and of listeners the SO_REUSEPORT group and the
// program that picks among it. It reads by an eBPF TCP iterator (Linux 5.9 with
// BTF; CAP_BPF and CAP_PERFMON), holds no socket and changes none.
package sockiter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A Socket is one TCP socket.
type Socket struct {
	// Cookie is the socket's for as long as the machine runs (SO_COOKIE);
	// Inode that of its descriptors ("socket:[INODE]"), 0 if no process has
	// accepted it yet or all have closed it.
	Cookie, Inode uint64
	// Cgroup is the ID of the control group (version 2) in which the socket
	// was made.
	Cgroup uint64
	// Group tells SO_REUSEPORT groups apart, 0: none. Picked says that a
	// program picks among it; Program is its ID, 0 for classic BPF.
	Group   uint64
	Picked  bool
	Program ebpf.ProgramID
	// NAPI is that of the last packet (SO_INCOMING_NAPI_ID), 0 if it came
	// by none. Processor numbers (SO_INCOMING_CPU) are -1 where not known.
	NAPI uint32
	CPU  int
	// Queue is the receive queue of the last packet, -1 if not recorded.
	Queue    int
	Priority uint32
	// Received counts the segments that came for it.
	Received uint32
	Listens  bool
	State    int // of enum in linux/tcp_states.h
	// Local and Remote are without IPv4-mapped addresses.
	Local, Remote netip.AddrPort
}

// A Filter keeps to some sockets. The zero value is all.
type Filter struct {
	// Ports are local; none is all. At most 64 are given to the kernel.
	Ports []uint16
	// Listeners: listening sockets only. Connections: all others only.
	Listeners, Connections bool
}

// maxPorts is MAX_PORTS of sockets.c.
const maxPorts = 64

// record is struct record of sockets.c.
type record struct {
	Cookie, Inode, Cgroup, Group uint64
	Program, Picked, NAPI        uint32
	CPU                          int32
	Priority                     uint32
	Queue, Family                uint16
	LocalPort, RemotePort        uint16
	State                        uint8
	_                            [3]byte
	Received                     uint32
	_                            uint32
	Local, Remote                [16]byte
}

const listenState = 10 // TCP_LISTEN

// A Reader lists sockets as often as wanted; opening it loads the program.
type Reader struct {
	coll *ebpf.Collection
	it   *link.Iter
}

// Open loads the iterator for a filter.
func Open(f Filter) (*Reader, error) {
	spec, err := loadSockets()
	if err != nil {
		return nil, err
	}
	var ports [maxPorts]uint16
	n := len(f.Ports)
	if copy(ports[:], f.Ports) < n {
		n = 0 // more than the kernel is told: all are read
	}
	which := uint32(0)
	switch {
	case f.Listeners && f.Connections:
		return nil, errors.New("listeners only, and all others only: no socket is both")
	case f.Listeners:
		which = 1
	case f.Connections:
		which = 2
	}
	for name, value := range map[string]any{"ports": ports, "nports": uint32(n), "listeners": which} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("niclane_sockets: %w", err)
	}
	it, err := link.AttachIter(link.IterOptions{Program: coll.Programs["niclane_sockets"]})
	if err != nil {
		coll.Close()
		return nil, fmt.Errorf("niclane_sockets: %w", err)
	}
	return &Reader{coll, it}, nil
}

// Close unloads it.
func (r *Reader) Close() error {
	err := r.it.Close()
	r.coll.Close()
	return err
}

// Sockets lists those of the calling thread's network namespace.
func (r *Reader) Sockets() ([]Socket, error) {
	f, err := r.it.Open()
	if err != nil {
		return nil, fmt.Errorf("niclane_sockets: %w", err)
	}
	defer f.Close()
	return decode(bufio.NewReaderSize(f, 1<<16))
}

// List is Open, Sockets and Close.
func List(f Filter) ([]Socket, error) {
	r, err := Open(f)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Sockets()
}

func decode(in io.Reader) ([]Socket, error) {
	var out []Socket
	for {
		var r record
		err := binary.Read(in, binary.NativeEndian, &r)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("niclane_sockets: %w", err)
		}
		out = append(out, r.socket())
	}
}

func (r *record) socket() Socket {
	s := Socket{
		Cookie: r.Cookie, Inode: r.Inode, Cgroup: r.Cgroup, Group: r.Group, Picked: r.Picked != 0,
		Program: ebpf.ProgramID(r.Program),
		NAPI:    r.NAPI, Received: r.Received, CPU: int(r.CPU), Queue: int(r.Queue), Priority: r.Priority,
		State: int(r.State), Listens: r.State == listenState,
		Local:  netip.AddrPortFrom(address(r.Family, r.Local), r.LocalPort),
		Remote: netip.AddrPortFrom(address(r.Family, r.Remote), r.RemotePort),
	}
	if r.Queue == 0xffff {
		s.Queue = -1
	}
	return s
}

func address(family uint16, b [16]byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b).Unmap()
}

// SPDX-License-Identifier: Apache-2.0

// Package sockiter lists TCP sockets, with data that socket diagnostics (sock_diag(7)) do not have.
// These are the NAPI, processor and receive queue of the last packet, and the control group. A
// listener also has its SO_REUSEPORT group and that group's program. The package uses an eBPF TCP
// iterator (Linux 5.9 with BTF; CAP_BPF and CAP_PERFMON). It opens and changes no socket.
package sockiter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A Socket is one TCP socket.
type Socket struct {
	// Cookie identifies the socket until reboot (SO_COOKIE). Inode is the socket's inode number, which
	// a descriptor's link shows ("socket:[INODE]"). Inode is 0 if no process has a descriptor: the
	// socket is not accepted yet, or closed.
	Cookie, Inode uint64
	// Cgroup is the ID of the version 2 control group in which the socket was created.
	Cgroup uint64
	// Group identifies the SO_REUSEPORT group; 0: none. Picked is true if a program chooses the
	// group's listener. Program is that program's ID, 0 for a classic BPF program.
	Group   uint64
	Picked  bool
	Program ebpf.ProgramID
	// NAPI is the NAPI ID of the last packet (SO_INCOMING_NAPI_ID); 0: none. CPU is the processor on
	// which that packet arrived (SO_INCOMING_CPU), -1 if unknown.
	NAPI uint32
	CPU  int
	// Queue is the receive queue of the last packet, -1 if not recorded.
	Queue    int
	Priority uint32
	// Received counts the received segments.
	Received uint32
	// RTT is TCP's smoothed round trip time (RFC 6298); 0: not known.
	RTT     time.Duration
	Listens bool
	State   int // enum in linux/tcp_states.h
	// Local and Remote are never IPv4-mapped IPv6 addresses.
	Local, Remote netip.AddrPort
}

// A Filter selects sockets. The zero value selects all.
type Filter struct {
	// Ports are local ports; empty: all. If there are more than 64, the iterator returns the sockets
	// of all ports.
	Ports []uint16
	// Listeners selects only listening sockets. Connections selects only the sockets that do not
	// listen.
	Listeners, Connections bool
}

// maxPorts equals MAX_PORTS of sockets.c.
const maxPorts = 64

// record corresponds to struct record of sockets.c.
type record struct {
	Cookie, Inode, Cgroup, Group uint64
	Program, Picked, NAPI        uint32
	CPU                          int32
	Priority                     uint32
	Queue, Family                uint16
	LocalPort, RemotePort        uint16
	State                        uint8
	_                            [3]byte
	Received, RTT                uint32
	Local, Remote                [16]byte
}

const listenState = 10 // TCP_LISTEN

// A Reader lists sockets. It loads its program once and can then list several times.
type Reader struct {
	coll *ebpf.Collection
	it   *link.Iter
}

// Open loads the iterator program for a filter.
func Open(f Filter) (*Reader, error) {
	spec, err := loadSockets()
	if err != nil {
		return nil, err
	}
	var ports [maxPorts]uint16
	n := len(f.Ports)
	if copy(ports[:], f.Ports) < n {
		n = 0 // too many for the program: it returns all ports
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

// Close unloads the program.
func (r *Reader) Close() error {
	err := r.it.Close()
	r.coll.Close()
	return err
}

// Sockets returns the sockets of the calling thread's network namespace.
func (r *Reader) Sockets() ([]Socket, error) {
	f, err := r.it.Open()
	if err != nil {
		return nil, fmt.Errorf("niclane_sockets: %w", err)
	}
	defer f.Close()
	return decode(bufio.NewReaderSize(f, 1<<16))
}

// List lists sockets once: it calls Open, Sockets and Close.
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
		RTT:   time.Duration(r.RTT) * time.Microsecond,
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

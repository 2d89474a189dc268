// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"time"
)

// An Inventory is what serves in the network namespace of the caller.
type Inventory struct {
	// Services are the owners of listening sockets, ordered by name, then by port.
	Services []Service `json:"services"`
	// Paths are the devices at which packets for the services' addresses arrive, ordered by name.
	Paths []Path `json:"paths"`
	// Elsewhere are the services in other network namespaces.
	Elsewhere []Namespace `json:"elsewhere"`
	// Contenders are the processes that write settings of network devices, ordered by name.
	Contenders []Contender `json:"contenders"`
	// Watched is for how many seconds Watch has watched traffic; 0: not.
	// From is when that began.
	Watched float64   `json:"watchedSeconds"`
	From    time.Time `json:"watchedFrom"`
	// Devices are the devices on which Watch has counted packets.
	Devices []Device `json:"devices"`
	// Senders are the processes with the most traffic on connections that no listener has accepted,
	// such as backups and replication, at most 5, the busiest first.
	Senders []Sender `json:"senders"`
	// Notes say what could not be read or counted, and why.
	Notes []string `json:"notes"`
}

// A Service is one owner of listening sockets: a container, a systemd unit, or else the processes
// that share a listening socket or an SO_REUSEPORT group.
type Service struct {
	// Name is the unit's name without ".service", else the name of the first process, else Kernel or
	// Unknown.
	Name string `json:"name"`
	// Unit is the systemd service ("memcached.service"), Socket the systemd socket that holds a
	// listening socket ("ssh.socket"); "" for none.
	Unit   string `json:"unit,omitempty"`
	Socket string `json:"socket,omitempty"`
	// Container is the ID of the container, Runtime what has made it, as far as the control group
	// tells: "docker", "libpod", "cri-containerd", "crio", "nspawn", "lxc"; "" if it does not.
	Container string `json:"container,omitempty"`
	Runtime   string `json:"runtime,omitempty"`
	// Cgroup is the control group below the root of its hierarchy; "" if unknown or the root.
	Cgroup string `json:"cgroup,omitempty"`
	// Processes are the holders of the listening sockets and of their connections, ascending. Systemd
	// as the service manager is one only if no other process has a listening socket.
	Processes []Process  `json:"processes"`
	Endpoints []Endpoint `json:"endpoints"`
	// CPU is the processor time of Processes per second, in processors, while Watch watched.
	CPU float64 `json:"cpu"`
	// Carries is what the caller would lose without the service: "this login, from 192.0.2.7".
	Carries string `json:"carries,omitempty"`
}

// The names of services without a process.
const (
	Kernel  = "kernel"  // the kernel's own socket: NFS, WireGuard, VXLAN
	Unknown = "unknown" // the holder could not be read
)

// A Process holds a socket.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// CPUs are the processors on which its first thread may run, nil if unknown.
	CPUs []int `json:"cpus,omitempty"`
}

// An Endpoint is one port of a service.
type Endpoint struct {
	Protocol string `json:"protocol"` // "tcp" or "udp"
	Port     uint16 `json:"port"`
	// Addrs are the addresses of the listening sockets, ascending, never IPv4-mapped. 0.0.0.0 and ::
	// stand for all.
	Addrs []netip.Addr `json:"addrs"`
	// Listeners is the number of listening sockets. ReusePort says that several share an address.
	Listeners int  `json:"listeners"`
	ReusePort bool `json:"reusePort,omitempty"`
	// Inodes are the inode numbers of the listening sockets, ascending.
	Inodes []uint64 `json:"inodes"`
	// Devices are the names of those Paths by which the endpoint is reached; none: only from this host.
	Devices []string `json:"devices"`
	// Ephemeral says that the port is one that the kernel gives to clients
	// (net.ipv4.ip_local_port_range). A UDP socket there is rather a client's.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Connections counts the TCP connections from other hosts, IPv6 those of them by IPv6. Local counts
	// those from this host.
	Connections int `json:"connections"`
	IPv6        int `json:"connectionsIPv6"`
	Local       int `json:"localConnections"`
	// Opened is the number of connections from other hosts that appeared while Watch watched, per
	// second. Those that also ended meanwhile are not in it.
	Opened float64 `json:"openedPerSecond"`
	// Traffic is the traffic with other hosts; nil if it could not be counted. Source says how it was
	// counted.
	Traffic *Traffic `json:"traffic,omitempty"`
	// NAPIs counts the connections by the NAPI of their last packet, ordered by ID. TCP only.
	NAPIs []NAPIUse `json:"napis,omitempty"`
}

// Where a Traffic was counted.
const (
	// FromPackets: every packet was counted at the device, also those of short connections.
	FromPackets = "packets"
	// FromSockets: from the counters of the TCP connections that existed at the begin and at the end
	// (struct tcp_info). Short connections are missing.
	FromSockets = "sockets"
)

// A Traffic is what an endpoint received and sent.
type Traffic struct {
	In     Rate   `json:"in"`
	Out    Rate   `json:"out"`
	Source string `json:"source"`
}

// A Rate is a number of packets and bytes per second.
type Rate struct {
	// Packets counts segments as on the wire.
	Packets float64 `json:"packets"`
	// Data counts the packets that carry data; all packets for UDP.
	Data float64 `json:"data"`
	// Bytes is the payload, without headers of TCP, UDP and below. From packets it is an estimate to a
	// few percent.
	Bytes float64 `json:"bytes"`
}

// A NAPIUse is a NAPI and a number of connections.
type NAPIUse struct {
	ID          uint32 `json:"id"`
	Connections int    `json:"connections"`
}

// A Path is a device at which packets arrive, and the devices on top of it that have the addresses.
type Path struct {
	Device string `json:"device"`
	// Kind is the device's kind as in rtnetlink ("veth", "tun"); "device" for hardware and others
	// without one.
	Kind string `json:"kind"`
	// Via are the devices between the device and the addresses, from below: "bond0", "bond0.10".
	Via []string `json:"via,omitempty"`
	// Bond is the device's bond, if it is a slave.
	Bond string `json:"bond,omitempty"`
}

// A Device is a device with the packets that Watch has counted on it.
type Device struct {
	Name string `json:"name"`
	In   Rate   `json:"in"`
	Out  Rate   `json:"out"`
	// Queues are the receive queues that had packets, ascending.
	Queues []Queue `json:"queues"`
}

// A Queue is a receive queue and what arrived in it.
type Queue struct {
	ID int `json:"id"`
	// CPUs are the processors of its interrupts, as a list ("0-3"); "" if unknown.
	CPUs   string  `json:"cpus,omitempty"`
	Shares []Share `json:"shares"` // most packets first
}

// A Share is the part that one endpoint has of a queue's packets.
type Share struct {
	// Of is "tcp/11211", or "" for the packets of no endpoint.
	Of      string  `json:"of"`
	Packets float64 `json:"packets"` // per second
}

// A Namespace is a service in another network namespace. Several can be in one, as the containers of
// a pod are.
type Namespace struct {
	// ID is the namespace's inode number.
	ID uint64 `json:"id"`
	// Process is the first of the service's processes; if they are not known, one in the namespace.
	Process Process `json:"process"`
	// PIDs are the holders of its listening sockets, ascending.
	PIDs      []int  `json:"pids"`
	Container string `json:"container,omitempty"`
	Unit      string `json:"unit,omitempty"`
	// Listening are the ports, such as "tcp/80", ascending by port and protocol.
	Listening []string `json:"listening"`
}

// A Contender is a process that writes settings of network devices.
type Contender struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
}

// A Sender is a process with connections that no listener has accepted.
type Sender struct {
	Process Process `json:"process"`
	// RemotePort is the port of the other side of its busiest connection.
	RemotePort uint16  `json:"remotePort"`
	In         float64 `json:"inBytes"`  // payload per second
	Out        float64 `json:"outBytes"` // payload per second
}

// Of returns the name of an endpoint in Shares: "tcp/11211".
func (e *Endpoint) Of() string { return of(e.Protocol, e.Port) }

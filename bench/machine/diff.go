// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lane/device"
)

// A Diff is the change between two snapshots.
type Diff struct {
	Duration int64 `json:"durationNs"`
	CPUs     []CPU `json:"cpus"`
	// For the whole host.
	ContextSwitches uint64    `json:"contextSwitches"`
	Interrupts      uint64    `json:"interrupts"`
	SoftIRQs        SoftIRQs  `json:"softirqs"`
	Softnet         []Softnet `json:"softnet"`
	// For the network namespace.
	TCP    TCP     `json:"tcp"`
	UDP    UDP     `json:"udp"`
	Device *Device `json:"device,omitempty"`
	// Cards has each of several devices. Device is then all of them together.
	Cards []Card `json:"cards,omitempty"`
	// KernelTLS is nil if the kernel has no TLS.
	KernelTLS *KernelTLS `json:"kernelTLS,omitempty"`
	// Memory of the whole host, and its disks.
	Memory Memory `json:"memory"`
	// Lanes that were applied on the device, the default lane included.
	Lanes []Lane `json:"lanes,omitempty"`
	// NAPIs of the device that were polled; none if polls are not counted.
	NAPIs     []napi.Count `json:"napis,omitempty"`
	Processes []Process    `json:"processes,omitempty"`
}

// CPU is a processor's time by kind in ns, counted in the kernel's ticks of 10 ms (proc_stat(5)).
// User includes nice, Idle includes waiting for disks. Some kernels look only once in a tick at what
// a processor does. They count short and frequent activity wrongly.
type CPU struct {
	CPU     int   `json:"cpu"`
	User    int64 `json:"userNs"`
	System  int64 `json:"systemNs"`
	IRQ     int64 `json:"irqNs"`
	SoftIRQ int64 `json:"softirqNs"`
	Steal   int64 `json:"stealNs"`
	Idle    int64 `json:"idleNs"`
}

// SoftIRQs are the numbers of softirqs that ran, on all processors.
type SoftIRQs struct {
	NetRx uint64 `json:"netRx"`
	NetTx uint64 `json:"netTx"`
	Timer uint64 `json:"timer"`
	Sched uint64 `json:"sched"`
	All   uint64 `json:"all"`
}

// Softnet counts what one processor received (/proc/net/softnet_stat).
type Softnet struct {
	CPU       int    `json:"cpu"`
	Processed uint32 `json:"processed"` // packets
	Dropped   uint32 `json:"dropped"`   // packets, because the processor's backlog was full
	// TimeSqueezed is how often net_rx_action stopped although packets were left.
	TimeSqueezed uint32 `json:"timeSqueezed"`
	RPS          uint32 `json:"rps"` // inter-processor interrupts of RPS
}

// TCP counts segments (proc_pid_net(5): snmp, netstat).
type TCP struct {
	InSegments  uint64 `json:"inSegments"`
	OutSegments uint64 `json:"outSegments"`
	Retransmits uint64 `json:"retransmits"`
	Timeouts    uint64 `json:"timeouts"` // retransmission timers that fired
	ListenDrops uint64 `json:"listenDrops"`
	// BusyPolled is the number of packets that a busy-polling thread received.
	BusyPolled uint64 `json:"busyPolled"`
}

// UDP counts datagrams. An error is a datagram lost to a full socket buffer.
type UDP struct {
	InDatagrams   uint64 `json:"inDatagrams"`
	OutDatagrams  uint64 `json:"outDatagrams"`
	ReceiveErrors uint64 `json:"receiveErrors"`
	SendErrors    uint64 `json:"sendErrors"`
}

// Device is the growth of a device's counters by queue and class.
type Device struct {
	Name    string                `json:"name"`
	Source  string                `json:"source,omitempty"`
	Rx      []device.QueueCounter `json:"rx,omitempty"`
	Tx      []device.QueueCounter `json:"tx,omitempty"`
	Classes []device.ClassCounter `json:"classes,omitempty"`
}

// A Card is one of several devices of a host, with the lanes on it.
type Card struct {
	Device *Device `json:"device"`
	Lanes  []Lane  `json:"lanes,omitempty"`
}

// A Lane is the growth of the counters of a lane's queues and class.
type Lane struct {
	Name string `json:"name"`
	// Rx and Tx are nil if the device does not count by queue. Rx is also nil if the lane has no
	// receive queues of its own.
	Rx *Traffic `json:"rx,omitempty"`
	Tx *Traffic `json:"tx,omitempty"`
	// Class is the traffic of the lane's HTB class, nil without one.
	Class *Traffic `json:"class,omitempty"`
}

// Traffic is the traffic of a lane's queues or of its class.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Drops   uint64 `json:"drops"`
}

// A Process is the resource use of a process and all its descendants. User and System are counted in
// ticks of 10 ms. A thread that ended between the snapshots does not count in Running, Waiting,
// Voluntary and Involuntary.
type Process struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Threads int    `json:"threads"`
	User    int64  `json:"userNs"`
	System  int64  `json:"systemNs"`
	// Running is the time on a processor. Waiting is the time in which a thread was ready but
	// had no processor (proc_pid_schedstat(5)). Neither is rounded to ticks.
	Running     int64  `json:"runningNs"`
	Waiting     int64  `json:"waitingNs"`
	Voluntary   uint64 `json:"voluntarySwitches"`
	Involuntary uint64 `json:"involuntarySwitches"`
	MinorFaults uint64 `json:"minorFaults"`
	// DiskRead is how much was read from disks for the process (proc_pid_io(5): read_bytes).
	DiskRead uint64 `json:"diskReadBytes"`
}

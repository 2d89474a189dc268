// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
)

const (
	// nap is how long a receiver lets datagrams collect in the socket, ns. Without it, the receiver
	// would wake for each datagram, 85,000 times a second at 1 Gbit/s.
	nap = 500e3
	// receiveBuffer is the size of the socket's receive buffer, in bytes. It is enough for 40 ms of
	// datagrams of 1472 bytes at 1 Gbit/s. The kernel also counts its own memory for each datagram.
	receiveBuffer = 8 << 20
	// grace is how long the receiver waits at the end for late datagrams. silence is how long it waits
	// for a sender that sends nothing. Both in ns.
	grace   = 50e6
	silence = 10e9
)

// datagrams runs a receiver of UDP.
func (r *run) datagrams() error {
	self, err := clockIdentity()
	if err != nil {
		return err
	}
	if r.cfg.Role == Send {
		return r.sendDatagrams(self)
	}
	fd, err := sock.ListenUDP(r.addr)
	if err != nil {
		return err
	}
	r.listener = fd
	roomy(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("set SO_TIMESTAMPNS: %w", err)
	}
	if err := r.watch(fd, unix.EPOLLIN); err != nil {
		return err
	}
	return (&receiver{run: r, self: self, in: newBatch(), sequences: make([]*incoming, r.cfg.Flows)}).loop()
}

// roomy gives a socket receiveBuffer bytes; without CAP_NET_ADMIN, at most net.core.rmem_max.
func roomy(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
}

// A receiver is a run that receives datagrams.
type receiver struct {
	*run
	self      uint64 // identity of its own clock, see clockIdentity
	in        *batch
	sender    uint64      // number of the sender's run, known after hello
	sequences []*incoming // by flow; an entry is nil until the flow's hello
	over      int         // number of flows that have ended
	overAt    int64
	heard     int64 // time of the sender's last datagram
}

// incoming is one flow at the receiver.
type incoming struct {
	sequence
	sent uint64 // how many datagrams the sender sent; 0: not known yet
	over bool
}

func (r *receiver) loop() error {
	cpu := thread.CPUTime()
	for busy := false; ; {
		now := r.clock.Now()
		if r.started {
			if now >= r.next {
				r.countLost()
				r.tick(now)
			}
			switch {
			case r.cfg.Duration > 0 && now >= r.start+r.cfg.Duration:
				return r.ended(cpu)
			case r.over == r.cfg.Flows && now >= r.overAt+grace:
				return r.ended(cpu)
			case now-r.heard > silence:
				r.warn("no datagram came for %d s, and %d of %d flows have not ended", int64(silence/1e9),
					r.cfg.Flows-r.over, r.cfg.Flows)
				return r.ended(cpu)
			}
		}
		woken, err := r.pause(busy)
		if err != nil {
			return err
		}
		if busy, err = r.drain(); err != nil {
			return err
		}
		if woken {
			if !r.started {
				return r.early()
			}
			return r.ended(cpu)
		}
	}
}

// pause waits until datagrams arrive. If busy, some have just arrived, and it sleeps for nap
// instead. It reports whether ctx has ended.
func (r *receiver) pause(busy bool) (bool, error) {
	fds := [2]unix.PollFd{{Fd: int32(r.wake), Events: unix.POLLIN}, {Fd: int32(r.listener), Events: unix.POLLIN}}
	watched, ns := fds[:], r.cfg.Interval
	if busy {
		watched, ns = fds[:1], nap
	}
	ts := unix.NsecToTimespec(ns)
	if _, err := unix.Ppoll(watched, &ts, nil); err != nil && err != unix.EINTR {
		return false, fmt.Errorf("ppoll: %w", err)
	}
	r.res.Wakeups++
	return fds[0].Revents != 0, nil
}

// turn is the number of batches that a receiver takes before it checks other things, such as
// whether it must end. Without this limit, datagrams that arrive faster than it counts them would
// keep it in drain forever.
const turn = 32

// drain counts the datagrams that have arrived, at most turn batches, and reports whether there was
// any.
func (r *receiver) drain() (busy bool, err error) {
	for range turn {
		n, errno := r.in.receive(r.listener)
		switch {
		case errno == unix.EAGAIN:
			return busy, nil
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return busy, fmt.Errorf("recvmmsg: %w", errno)
		}
		busy = true
		offset := realOffset()
		for i := range n {
			r.take(i, offset)
		}
		if n < batchSize {
			return busy, nil
		}
	}
	return busy, nil
}

// take counts datagram i of the batch. offset is CLOCK_REALTIME minus CLOCK_MONOTONIC, for the
// kernel's timestamps.
func (r *receiver) take(i int, offset int64) {
	h, err := r.in.header(i)
	if err != nil || int(h.flow) >= len(r.sequences) || r.sender != 0 && h.run != r.sender {
		return // from another program
	}
	f := r.sequences[h.flow]
	if f == nil {
		if h.kind != hello || h.run == 0 {
			return
		}
		if !r.started {
			r.sender = h.run
			r.begin()
		}
		f = &incoming{}
		r.sequences[h.flow] = f
		r.res.Flows++
	}
	r.heard = r.clock.Now()
	back := h
	switch h.kind {
	case hello:
		back.kind, back.clock = welcome, r.self
		r.in.answer(r.listener, i, back)
	case data, echo:
		if h.kind == echo && h.clock != r.self {
			back.kind = reply
			r.in.answer(r.listener, i, back)
		}
		if !f.take(h.seq) {
			return
		}
		r.bytes += r.in.bytes(i)
		r.res.Datagrams++
		if h.clock != r.self {
			return
		}
		at := r.in.arrived(i) - offset
		if at <= 0 {
			at = thread.Monotonic()
		}
		r.latency.add(at - h.stamp)
		r.res.Latency.Record(at - h.stamp)
		r.res.LatencyOf = OneWay
	case end:
		f.sent = h.seq
		if !f.over {
			f.over = true
			r.over++
			r.overAt = r.heard
		}
		back.kind = ended
		r.in.answer(r.listener, i, back)
	}
}

// countLost sums the lost, duplicate and reordered datagrams of all flows.
func (r *receiver) countLost() {
	res := &r.res
	res.Lost, res.Duplicates, res.Reordered = 0, 0, 0
	for _, f := range r.sequences {
		if f != nil {
			res.Lost += f.lost(f.sent)
			res.Duplicates += f.duplicates
			res.Reordered += f.reordered
		}
	}
}

func (r *receiver) ended(cpu int64) error {
	r.countLost()
	r.res.SocketDrops = drops(r.listener)
	if n := r.res.SocketDrops; n > 0 {
		r.warn("%d of %d lost datagrams found the receiver's own socket full: the receiver is too slow", n, r.res.Lost)
	}
	now := r.clock.Now()
	if r.over == r.cfg.Flows {
		now = r.overAt
	}
	r.total(cpu, now)
	return nil
}

// drops returns how many packets the kernel dropped because the socket was full: SO_MEMINFO's
// SK_MEMINFO_DROPS (linux/sock_diag.h), 0 before Linux 4.12.
func drops(fd int) int64 {
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return 0
	}
	return int64(info[8])
}

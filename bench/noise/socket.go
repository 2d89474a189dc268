// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// options sets the options of a sending socket before it connects.
func (r *run) options(fd int) error {
	if r.cfg.Rate > 0 {
		// The rate is in bytes/s. Linux accepts a 64-bit value since 4.20.
		rate := uint64(r.cfg.Rate) / 8 / uint64(r.cfg.Flows)
		_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE,
			uintptr(unsafe.Pointer(&rate)), unsafe.Sizeof(rate), 0)
		if e != 0 {
			return fmt.Errorf("set SO_MAX_PACING_RATE %d: %w", rate, e)
		}
	}
	if r.cfg.SendBuffer > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, r.cfg.SendBuffer); err != nil {
			return fmt.Errorf("set SO_SNDBUF %d: %w", r.cfg.SendBuffer, err)
		}
	}
	if r.cfg.MSS > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, r.cfg.MSS); err != nil {
			return fmt.Errorf("set TCP_MAXSEG %d: %w", r.cfg.MSS, err)
		}
	}
	if r.cfg.Congestion != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, r.cfg.Congestion); err != nil {
			return fmt.Errorf("set TCP_CONGESTION %s: %w", r.cfg.Congestion, err)
		}
	}
	return nil
}

// fillSource creates the memory file from which flows send. sendfile passes its pages to the
// network by reference, without a copy.
func (r *run) fillSource() error {
	fd, err := unix.MemfdCreate("niclane-noise", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	r.source = fd
	if err := unix.Fallocate(fd, 0, 0, sourceSize); err != nil {
		return fmt.Errorf("allocate %d bytes of memory file: %w", sourceSize, err)
	}
	return nil
}

// send sends as much data as the socket of f accepts now.
func (r *run) send(f *flow) {
	for {
		var off int64
		n, err := unix.Sendfile(f.fd, r.source, &off, sourceSize)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.EAGAIN {
			r.drop(f, err)
			return
		}
		if err != nil || n < sourceSize {
			return
		}
	}
}

// discard is the largest number of bytes that one receive discards.
const discard = 4 << 20

// receive discards the data that has arrived at f. With MSG_TRUNC, TCP does not copy it (tcp(7)).
func (r *run) receive(f *flow) {
	for {
		n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(f.fd), 0, discard, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e == unix.EAGAIN:
			return
		case e != 0 || n == 0:
			// A sender ends with a reset of the connection, which is no error.
			if e == unix.ECONNRESET {
				e = 0
			}
			var err error
			if e != 0 {
				err = e
			}
			r.drop(f, err)
			return
		}
		r.bytes += int64(n)
		if n < discard {
			return
		}
	}
}

func (r *run) drop(f *flow, err error) {
	if r.cfg.Role == Send {
		r.info(f)
	}
	f.closed = true
	unix.Close(f.fd)
	r.open--
	if err != nil {
		r.warn("a flow ended early: %v", err)
	}
}

func (r *run) accept() error {
	for {
		fd, _, err := unix.Accept4(r.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.EINTR, unix.ECONNABORTED:
			continue
		default:
			return fmt.Errorf("accept: %w", err)
		}
		if r.res.Flows >= r.cfg.Flows {
			unix.Close(fd)
			continue
		}
		if !r.started {
			r.begin()
		}
		// Wake up for every 64 KiB, not for every packet. sample reads the rest, once per interval.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 64<<10)
		if err := r.add(fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
}

// sample updates the byte counts of all open flows.
func (r *run) sample() {
	for _, f := range r.flows {
		if f.closed {
			continue
		}
		if r.cfg.Role == Receive {
			r.receive(f)
		} else {
			r.info(f)
		}
	}
	if r.cfg.Role == Send {
		r.res.Retransmits = 0
		for _, f := range r.flows {
			r.res.Retransmits += f.retransmits
		}
	}
}

// info reads TCP_INFO of a sending flow.
func (r *run) info(f *flow) {
	i, err := unix.GetsockoptTCPInfo(f.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return
	}
	r.bytes += int64(i.Bytes_acked) - f.acked
	f.acked = int64(i.Bytes_acked)
	f.retransmits = uint64(i.Total_retrans)
	if i.Rtt == 0 {
		return
	}
	rtt := int64(i.Rtt) * 1000
	r.rtts.add(rtt)
	r.latency.add(rtt)
	r.res.Latency.Record(rtt)
	r.res.LatencyOf = Smoothed
	r.res.RTTMax = max(r.res.RTTMax, rtt)
	if r.res.RTTMin == 0 || rtt < r.res.RTTMin {
		r.res.RTTMin = rtt
	}
}

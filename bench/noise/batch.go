// SPDX-License-Identifier: Apache-2.0

package noise

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/thread"
)

// batchSize is the number of datagrams per system call.
const batchSize = 64

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	msg unix.Msghdr
	len uint32
}

// A batch is a buffer for recvmmsg(2). For each datagram it has the header, the sender and the
// arrival time. It must not be moved or copied, because it contains pointers into itself.
type batch struct {
	msgs    [batchSize]mmsghdr
	iov     [batchSize]unix.Iovec
	heads   [batchSize][headerBytes]byte
	names   [batchSize]unix.RawSockaddrInet6 // or Inet4, which is smaller
	control [batchSize][64]byte
}

func newBatch() *batch {
	b := &batch{}
	for i := range b.msgs {
		b.iov[i] = unix.Iovec{Base: &b.heads[i][0], Len: headerBytes}
		b.msgs[i].msg = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&b.names[i])), Iov: &b.iov[i], Iovlen: 1,
			Control: &b.control[i][0]}
	}
	return b
}

// receive receives the datagrams that wait at fd. With MSG_TRUNC, the kernel reports each
// datagram's full length but copies only its header.
func (b *batch) receive(fd int) (int, unix.Errno) {
	for i := range b.msgs {
		m := &b.msgs[i].msg
		m.Namelen, m.Controllen = unix.SizeofSockaddrInet6, uint64(len(b.control[i]))
	}
	n, _, e := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs[0])), batchSize,
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	return int(n), e
}

// header returns the header of datagram i.
func (b *batch) header(i int) (header, error) {
	return parse(b.heads[i][:min(b.msgs[i].len, headerBytes)])
}

func (b *batch) bytes(i int) int64 { return int64(b.msgs[i].len) }

// arrived returns the kernel's receive time of datagram i, CLOCK_REALTIME in ns; 0 if it has none.
// The kernel sends this time in a control message (socket(7), and timestamping in the kernel's
// networking documentation).
func (b *batch) arrived(i int) int64 {
	c := b.control[i][:min(b.msgs[i].msg.Controllen, uint64(len(b.control[i])))]
	at := unix.CmsgLen(0)
	if len(c) < at+16 {
		return 0
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	if h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_TIMESTAMPNS {
		return 0
	}
	return int64(binary.NativeEndian.Uint64(c[at:]))*1e9 + int64(binary.NativeEndian.Uint64(c[at+8:]))
}

// answer sends a header back to the sender of datagram i.
func (b *batch) answer(fd, i int, h header) {
	var out [headerBytes]byte
	h.put(out[:])
	m := &b.msgs[i].msg
	// Errors do not matter: if this answer is lost, the sender repeats its message.
	_, _, _ = unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&out[0])), headerBytes,
		unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(m.Name)), uintptr(m.Namelen))
}

// realOffset returns CLOCK_REALTIME minus CLOCK_MONOTONIC now, accurate to about 1 µs. If the
// thread was interrupted in all three attempts, it returns the best of them.
func realOffset() (offset int64) {
	closest := int64(math.MaxInt64)
	for i := 0; i < 3 && closest > 2000; i++ {
		var actual unix.Timespec
		before := thread.Monotonic()
		_ = unix.ClockGettime(unix.CLOCK_REALTIME, &actual) // cannot fail with a valid clock and pointer
		if after := thread.Monotonic(); after-before < closest {
			closest = after - before
			offset = actual.Nano() - before - closest/2
		}
	}
	return offset
}

// A volley is a buffer for sendmmsg(2), with datagrams of one flow.
type volley struct {
	msgs  [batchSize]mmsghdr
	iov   [batchSize][2]unix.Iovec
	heads [batchSize][headerBytes]byte
	tail  []byte
}

func newVolley(datagram int) *volley {
	v := &volley{tail: make([]byte, max(datagram-headerBytes, 1))}
	for i := range v.msgs {
		v.iov[i] = [2]unix.Iovec{{Base: &v.heads[i][0], Len: headerBytes},
			{Base: &v.tail[0], Len: uint64(datagram - headerBytes)}}
		v.msgs[i].msg = unix.Msghdr{Iov: &v.iov[i][0], Iovlen: 2}
	}
	return v
}

// send sends the first n datagrams and returns how many the socket accepted.
func (v *volley) send(fd, n int) (int, unix.Errno) {
	sent, _, e := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.msgs[0])), uintptr(n),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(sent), e
}

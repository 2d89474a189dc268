// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// The ends of a wire: frames leave by from and arrive at to.
const (
	from = "v0"
	to   = "v1"
)

// etherType is that of the tests' frames, for local experiments (IEEE 802). No protocol of the
// kernel takes them.
const etherType = 0x88b5

// A frame is one that a test sends.
type frame struct {
	due  int64 // ns after the start
	size int   // bytes, with the Ethernet header
	// priority is the socket's SO_PRIORITY. Queueing disciplines choose a class by it.
	priority uint32
}

// run runs command lines, which must not contain quotes.
func run(t testing.TB, script string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(script)) {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.TrimSpace(line), err, out)
		}
	}
}

// wire makes the wire whose one end is dev: a veth pair, or the simulated card's. Both ends of the
// card's are in one namespace, which matters to no frame of etherType.
func wire(t testing.TB, dev string) {
	t.Helper()
	// IPv6 would send frames of its own.
	for _, f := range []string{"all", "default"} {
		must.Do(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+f+"/disable_ipv6", []byte("1"), 0))
	}
	if dev == bed.Dev {
		run(t, "ip link set wire0 up\nip link set sim0 up")
		return
	}
	run(t, `
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up`[1:])
}

// play sends frames from one device and returns when each arrives at another, in ns after the
// start; -1 for a frame that does not arrive. The frames are in the order of their times. A frame
// leaves exactly when it is due, because work takes no time.
func play(t testing.TB, from, to string, frames []frame) []int64 {
	t.Helper()
	runtime.LockOSThread()
	must.Do(t, unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0))
	senders := map[uint32]int{}
	for _, f := range frames {
		if _, ok := senders[f.priority]; !ok {
			s := packetSocket(t, from, 0)
			must.Do(t, unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<30))
			must.Do(t, unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_PRIORITY, int(f.priority)))
			senders[f.priority] = s
		}
	}
	receiver := packetSocket(t, to, etherType)
	must.Do(t, unix.SetsockoptInt(receiver, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<30))
	must.Do(t, unix.SetsockoptInt(receiver, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))

	dev, err := net.InterfaceByName(to)
	must.Do(t, err)
	buffer := make([]byte, 1<<16)
	copy(buffer, dev.HardwareAddr)
	binary.BigEndian.PutUint16(buffer[12:], etherType)
	arrived := make([]int64, len(frames))
	for i := range arrived {
		arrived[i] = -1
	}
	start := now() + 2e9
	for i, f := range frames {
		sleep(start + f.due)
		binary.BigEndian.PutUint32(buffer[14:], uint32(i))
		if _, err := unix.Write(senders[f.priority], buffer[:f.size]); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	// The kernel has the times, so frames are read at the end: to read one takes a reading of the clock.
	for left, quiet := len(frames), 0; left > 0 && quiet < 50; quiet++ {
		sleep(now() + 20e6)
		var b [18]byte
		oob := make([]byte, 64)
		for {
			_, n, _, _, err := unix.Recvmsg(receiver, b[:], oob, unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			arrived[binary.BigEndian.Uint32(b[14:])] = timestamp(oob[:n]) - start
			left, quiet = left-1, 0
		}
	}
	return arrived
}

func packetSocket(t testing.TB, name string, protocol uint16) int {
	t.Helper()
	dev, err := net.InterfaceByName(name)
	must.Do(t, err)
	p := protocol<<8 | protocol>>8 // in network byte order
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(p))
	must.Do(t, err)
	t.Cleanup(func() { unix.Close(s) })
	must.Do(t, unix.Bind(s, &unix.SockaddrLinklayer{Protocol: p, Ifindex: dev.Index}))
	return s
}

// timestamp returns the time in a control message of SO_TIMESTAMPNS.
func timestamp(oob []byte) int64 {
	const header = unix.SizeofCmsghdr
	if len(oob) < header+16 {
		panic("no timestamp")
	}
	return int64(binary.NativeEndian.Uint64(oob[header:])*1e9 + binary.NativeEndian.Uint64(oob[header+8:]))
}

// now returns CLOCK_REALTIME, the clock of timestamps.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// sleep sleeps until a time of CLOCK_REALTIME. The system call is raw, so that the Go runtime does
// not watch it: its watching wakes the guest.
func sleep(until int64) {
	ts := unix.NsecToTimespec(until)
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_REALTIME, unix.TIMER_ABSTIME,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		if errno != unix.EINTR {
			return
		}
	}
}

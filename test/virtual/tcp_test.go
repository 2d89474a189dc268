// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// mss is the payload of a TCP segment with timestamps, at an MTU of 1500.
const mss = 1448

// TestTCPWindow checks that TCP sends a window in each round trip, if no link limits it. The window is
// what the receiver advertises for its buffer, in whole segments.
func TestTCPWindow(t *testing.T) {
	for _, buffer := range []int{40_000, 100_000, 400_000} {
		t.Run(fmt.Sprint(buffer), func(t *testing.T) {
			if !inGuest(t) {
				return
			}
			const rtt = 100 * time.Millisecond
			got, window := throughput(t, "netem delay 50ms limit 100000", "netem delay 50ms limit 100000", buffer,
				50*time.Second)
			want := float64(window/mss*mss) / rtt.Seconds()
			t.Logf("window %d: %.0f bytes/s, want %.0f: %+.2f %%", window, got, want, 100*(got/want-1))
			if !(math.Abs(got/want-1) <= 0.01) {
				t.Errorf("window %d: %.0f bytes/s, want %.0f", window, got, want)
			}
		})
	}
}

// TestTCPLoss checks Reno's rate for random loss against the formula of Mathis and others (1997),
// sqrt(3/2p) segments in a round trip. It is an approximation: it knows no timeouts, and takes losses
// as periodic. So the tolerance is 10 %; 4.0 and 5.4 % were measured.
func TestTCPLoss(t *testing.T) {
	for _, p := range []float64{0.001, 0.004} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			if !inGuest(t) {
				return
			}
			const rtt = 100 * time.Millisecond
			got, _ := throughput(t, fmt.Sprintf("netem delay 50ms loss %g%% limit 100000", 100*p),
				"netem delay 50ms limit 100000", 8<<20, 2000*time.Second)
			want := mss / rtt.Seconds() * math.Sqrt(1.5/p)
			t.Logf("%.0f bytes/s, want %.0f: %+.1f %%", got, want, 100*(got/want-1))
			if !(math.Abs(got/want-1) <= 0.1) {
				t.Errorf("%.0f bytes/s, want %.0f", got, want)
			}
		})
	}
}

// throughput returns the payload in bytes/s of one TCP connection with congestion control Reno. data
// and acks are the queueing disciplines of the two directions. buffer is the receiver's in bytes. It also
// returns the window that the receiver has advertised. The first part does not count.
func throughput(t *testing.T, data, acks string, buffer int, duration time.Duration) (rate float64, window int) {
	wire(t, from)
	run(t, fmt.Sprintf(`
ip netns add wire
ip link set v1 netns wire
ip addr add 10.9.0.1/24 dev v0
ip -n wire addr add 10.9.0.2/24 dev v1
ip -n wire link set v1 up
ip link set v0 gso_max_segs 1
tc qdisc add dev v0 root %s
ip netns exec wire tc qdisc add dev v1 root %s
sysctl -qw net.ipv4.tcp_congestion_control=reno
sysctl -qw net.ipv4.tcp_no_metrics_save=1`[1:], data, acks))
	local, remote := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	var listener, sender int
	bed.Within(t, "wire", func() { listener = socket(t, remote) })
	must.Do(t, unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer))
	must.Do(t, unix.Listen(listener, 1))
	sender = socket(t, local)
	must.Do(t, unix.SetsockoptInt(sender, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20))
	must.Do(t, unix.Connect(sender, &unix.SockaddrInet4{Port: 7000, Addr: remote.As4()}))
	receiver, _, err := unix.Accept(listener)
	must.Do(t, err)

	go func() {
		b := make([]byte, 64<<10)
		for {
			if _, err := unix.Write(sender, b); err != nil {
				return // closed
			}
		}
	}()
	b := make([]byte, 1<<20)
	bytes, began := 0, now()
	warm := began + int64(duration/10)
	var first int64
	for {
		n, err := unix.Read(receiver, b)
		must.Do(t, err)
		at := now()
		if first == 0 && at >= warm {
			first = at
			continue
		}
		if first > 0 {
			bytes += n
		}
		if at >= began+int64(duration) {
			info, err := unix.GetsockoptTCPInfo(sender, unix.IPPROTO_TCP, unix.TCP_INFO)
			must.Do(t, err)
			return float64(bytes) * 1e9 / float64(at-first), int(info.Snd_wnd)
		}
	}
}

// socket returns a TCP socket on port 7000 of an address.
func socket(t *testing.T, addr netip.Addr) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	must.Do(t, unix.Bind(fd, &unix.SockaddrInet4{Port: 7000, Addr: addr.As4()}))
	return fd
}

// SPDX-License-Identifier: Apache-2.0

// Package fair tests that a flow with few packets does not wait behind bulk traffic in the same
// lane's class. It also tests that the members of a shared lane get equal shares, however many
// connections each has.
package fair

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
)

const lanes = `
version: 1
globals:
  dev: v0
  link-rate: RATEmbit
  force: {queue-set: shared}
lanes:
  web: {mode: shared, rank: 1, queues: 2, guarantee: 20%, protocol: udp, ports: [80, 81]}
`

// bulk is the number of frames of 1400 bytes that are sent. A link of 10 Mbit/s needs 0.2 s for them. fewest is
// how many of them must wait when the other flow begins.
const bulk, fewest = 200, 40

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// TestSparseFlow sends many datagrams of one flow, then a single datagram of another flow in the
// same lane. The single one must leave before most of the others. It tests a shared lane and the
// default lane.
func TestSparseFlow(t *testing.T) {
	vethtest.NeedRoot(t)
	for _, lane := range []struct {
		name         string
		bulk, sparse uint16 // destination ports of the two flows
	}{{"web", 80, 81}, {"default", 9000, 9001}} {
		t.Run(lane.name, func(t *testing.T) {
			vethtest.Run(t, 4, func(t *testing.T) {
				vethtest.OwnMounts(t)
				applyAt(t, 2, device.CapFQCodel)
				w := openWire(t)
				waiting := w.fill(t, 2, 1, func(int) vethtest.Datagram { return datagram(2, lane.bulk, 4000) })
				w.transmit(t, 1, func(int) vethtest.Datagram { return datagram(2, lane.sparse, 4000) })
				ahead := w.before(t, 1, func(d vethtest.Datagram) bool { return d.From == lane.sparse })
				if ahead > waiting*3/4 {
					t.Errorf("%d of the %d waiting frames of the other flow left before the datagram that came last: "+
						"it waited behind them", ahead, waiting)
				}
			})
		})
	}
}

// TestAddresses checks a shared lane with two members. A member with one connection must get as
// much as one with twenty.
func TestAddresses(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 4, func(t *testing.T) {
		vethtest.OwnMounts(t)
		applyAt(t, 10, device.CapCake)
		w := openWire(t)
		const flows = 20
		waiting := w.fill(t, 10, flows, func(i int) vethtest.Datagram { return datagram(2, 80, uint16(5000+i%flows)) })
		w.transmit(t, 20, func(int) vethtest.Datagram { return datagram(3, 80, 4000) })
		// Before the tenth frame of the second member, about ten frames of the first may leave. If flows
		// were equal, not members, ten frames of each of the twenty flows would leave: all of them.
		if ahead := w.before(t, 10, func(d vethtest.Datagram) bool { return d.Source == 3 }); ahead > waiting*3/4 {
			t.Errorf("%d of the %d waiting frames of one member left before the tenth of the other", ahead, waiting)
		}
	})
}

// applyAt makes the lanes on a link of so many Mbit/s. It skips the test if the kernel lacks the qdisc
// with the capability fair, which divides a lane fairly.
func applyAt(t *testing.T, rate int, fair device.Capability) {
	t.Helper()
	st := lanetest.Observe(t, vethtest.Dev)
	if can := st.Capabilities.Find(fair); can.Answer != device.Yes {
		t.Skipf("no %s: %s", fair, can.Why)
	}
	k, err := apply.NewKernel("")
	must.Do(t, err)
	t.Cleanup(func() { k.Close() })
	lanetest.Apply(t, k, strings.Replace(lanes, "RATE", strconv.Itoa(rate), 1), st)
}

// A wire is the two ends of the veth pair.
type wire struct {
	from, to         *net.Interface
	sender, receiver int
}

func openWire(t *testing.T) wire {
	t.Helper()
	w := wire{from: vethtest.Interface(t, vethtest.Dev), to: vethtest.Interface(t, vethtest.Peer)}
	w.sender, w.receiver = packetSocket(t, w.from.Index), packetSocket(t, w.to.Index)
	return w
}

// packetSocket returns a socket for whole frames of a device (packet(7)), with a read timeout
// of 10 s.
func packetSocket(t *testing.T, index int) int {
	t.Helper()
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // ETH_P_ALL in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	must.Do(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	// The buffers are so large that neither end delays or loses frames.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		must.Do(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 16<<20))
	}
	patience := unix.NsecToTimeval(int64(10 * time.Second))
	must.Do(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	return fd
}

// datagram returns a datagram of 1400 bytes that the card sends.
func datagram(source byte, from, to uint16) vethtest.Datagram {
	return vethtest.Datagram{Source: source, From: from, To: to, Payload: 1400 - 20 - 8}
}

// transmit sends n datagrams. It returns how many of them found room.
func (w wire) transmit(t *testing.T, n int, datagram func(i int) vethtest.Datagram) (sent int) {
	t.Helper()
	for i := range n {
		_, err := unix.Write(w.sender, datagram(i).Frame(w.from, w.to))
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			t.Fatal(err)
		}
		if err == nil {
			sent++
		}
	}
	return sent
}

// fill sends bulk datagrams of some flows, and returns how many of them wait when the last one is sent. A
// machine can be so busy that the link of so many Mbit/s is faster: then it tries again. The link must not
// be faster than its rate, except for the first packets of each flow.
func (w wire) fill(t *testing.T, rate, flows int, datagram func(i int) vethtest.Datagram) (waiting int) {
	t.Helper()
	onWire := 1400 * 8 * time.Microsecond / time.Duration(rate)
	for range 10 {
		began := time.Now()
		waiting += w.transmit(t, bulk, datagram)
		left := w.arrived(t)
		if took := time.Since(began); left > 10+3*flows+int(took/onWire) {
			t.Fatalf("%d frames left within %v, want one each %v", left, took, onWire)
		}
		if waiting -= left; waiting >= fewest {
			return waiting
		}
	}
	t.Fatalf("the link was faster than the sender ten times: %d frames wait, not %d", waiting, fewest)
	return 0
}

// arrived takes the datagrams that have arrived, without waiting, and returns their number.
func (w wire) arrived(t *testing.T) (n int) {
	t.Helper()
	b := make([]byte, 2048)
	for {
		switch size, _, err := unix.Recvfrom(w.receiver, b, unix.MSG_DONTWAIT); {
		case errors.Is(err, unix.EAGAIN):
			return n
		case err != nil:
			t.Fatal(err)
		default:
			if _, ok := vethtest.ParseDatagram(b[:size]); ok {
				n++
			}
		}
	}
}

// before returns how many other datagrams arrive before the nth datagram for which these is true.
func (w wire) before(t *testing.T, n int, these func(vethtest.Datagram) bool) (others int) {
	t.Helper()
	b := make([]byte, 2048)
	for seen := 0; ; {
		size, err := unix.Read(w.receiver, b)
		if err != nil {
			t.Fatalf("after %d datagrams, and %d of those looked for: %v", others, seen, err)
		}
		switch d, ok := vethtest.ParseDatagram(b[:size]); {
		case !ok: // a frame that the kernel sent itself
		case !these(d):
			others++
		default:
			if seen++; seen == n {
				return others
			}
		}
	}
}

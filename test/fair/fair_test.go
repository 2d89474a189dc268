// SPDX-License-Identifier: Apache-2.0

// Package fair tests that who has little to send does not wait behind the bulk of
// others with whom it shares a lane's class, and that a shared lane's members have
// the same of it however many connections they open.
package fair

import (
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/vethtest"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/plan"
)

const lanes = `
version: 1
globals:
  dev: v0
  link-rate: 10mbit
  force: {queue-set: shared}
lanes:
  web: {mode: shared, rank: 1, queues: 2, guarantee: 20%, protocol: udp, ports: [80, 81]}
`

// bulk is how many frames of 1400 bytes wait at once: 0.2 s of the link.
const bulk = 200

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// TestSparseFlow: one datagram that comes last, of a flow of its own, leaves before
// the bulk of another flow of the same lane: in a shared one, and in the default
// one, which has all that is in no other.
func TestSparseFlow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, lane := range []struct {
		name         string
		bulk, sparse uint16 // ports
	}{{"web", 80, 81}, {"default", 9000, 9001}} {
		t.Run(lane.name, func(t *testing.T) {
			vethtest.Run(t, 4, func(t *testing.T) {
				vethtest.OwnMounts(t)
				apply10(t, device.CapFQCodel)
				w := openWire(t)
				for range bulk {
					w.transmit(t, datagram{source: 2, from: lane.bulk, to: 4000})
				}
				w.transmit(t, datagram{source: 2, from: lane.sparse, to: 4000})
				ahead := w.before(t, 1, func(d datagram) bool { return d.from == lane.sparse })
				// The sender is faster than the link even where it is emulated: it
				// fills what takes 0.2 s to send.
				if ahead > bulk*3/4 {
					t.Errorf("%d of the %d frames of the other flow left before the datagram that came last: it waited behind them", ahead, bulk)
				}
			})
		})
	}
}

// TestAddresses: of two members of a shared lane the one with a single connection
// gets as much as the one with twenty.
func TestAddresses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	vethtest.Run(t, 4, func(t *testing.T) {
		vethtest.OwnMounts(t)
		apply10(t, device.CapCake)
		w := openWire(t)
		for i := range uint16(bulk) {
			w.transmit(t, datagram{source: 2, from: 80, to: 5000 + i%20})
		}
		for range 20 {
			w.transmit(t, datagram{source: 3, from: 80, to: 4000})
		}
		// Ten of each, and what had left before the second began; by flows it
		// would be ten of each of the twenty, which is all of them.
		if ahead := w.before(t, 10, func(d datagram) bool { return d.source == 3 }); ahead > bulk*3/4 {
			t.Errorf("%d of the %d frames of one member left before the tenth of the other", ahead, bulk)
		}
	})
}

// apply10 makes the lanes, on a link of 10 Mbit/s, where the kernel has what is
// fair.
func apply10(t *testing.T, fair device.Capability) {
	t.Helper()
	f, err := config.ParseFile("lanes.yaml", []byte(lanes))
	if err != nil {
		t.Fatal(err)
	}
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{"v0"}})
	if err != nil {
		t.Fatal(err)
	}
	if can := st.Capabilities.Find(fair); can.Answer != device.Yes {
		t.Skipf("no %s: %s", fair, can.Why)
	}
	host, err := journal.Here()
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(f.Intent, st, plan.Owned{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := apply.NewKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	j := journal.New(journal.Head{Host: host, Config: "/test", Generation: 1, Devices: p.Devices, Plan: p})
	if _, err := apply.Run(t.Context(), k, p, j, apply.Options{}); err != nil {
		t.Fatal(err)
	}
}

// A wire is the pair's two ends.
type wire struct {
	from, to         *net.Interface
	sender, receiver int
}

func openWire(t *testing.T) wire {
	t.Helper()
	w := wire{from: hardware(t, "v0"), to: hardware(t, "v1")}
	w.sender, w.receiver = packetSocket(t, w.from.Index), packetSocket(t, w.to.Index)
	return w
}

func hardware(t *testing.T, dev string) *net.Interface {
	t.Helper()
	i, err := net.InterfaceByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// packetSocket sends and receives whole frames of a device, as packet(7) says. What it
// waits for comes within 10 s or not at all.
func packetSocket(t *testing.T, index int) int {
	t.Helper()
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		t.Fatal(err)
	}
	// Neither end is what holds frames up or loses them.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 16<<20); err != nil {
			t.Fatal(err)
		}
	}
	patience := unix.NsecToTimeval(int64(10 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A datagram is a frame of UDP over IPv4 with 1400 bytes from the card.
type datagram struct {
	source   byte   // the last of the address
	from, to uint16 // ports
}

func (w wire) transmit(t *testing.T, d datagram) {
	t.Helper()
	if _, err := unix.Write(w.sender, d.frame(w)); err != nil {
		t.Fatal(err)
	}
}

// Where a frame has the source address, and the source port: after the headers of
// Ethernet and of IPv4 without options.
const (
	sourceAddress = 14 + 12
	sourcePort    = 14 + 20
)

// before is how many other datagrams arrive before the nth of these.
func (w wire) before(t *testing.T, n int, these func(datagram) bool) (others int) {
	t.Helper()
	b := make([]byte, 2048)
	for seen := 0; ; {
		size, err := unix.Read(w.receiver, b)
		if err != nil {
			t.Fatalf("after %d datagrams, and %d of those looked for: %v", others, seen, err)
		}
		if size < sourcePort+4 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP {
			continue
		}
		d := datagram{source: b[sourceAddress+3], from: binary.BigEndian.Uint16(b[sourcePort:]), to: binary.BigEndian.Uint16(b[sourcePort+2:])}
		if !these(d) {
			others++
		} else if seen++; seen == n {
			return others
		}
	}
}

func (d datagram) frame(w wire) []byte {
	const payload = 1400 - 28
	be := binary.BigEndian
	b := append(append([]byte{}, w.to.HardwareAddr...), w.from.HardwareAddr...)
	b = be.AppendUint16(b, unix.ETH_P_IP)
	ip := len(b)
	b = append(b, 0x45, 0)
	b = be.AppendUint16(b, 20+8+payload)
	b = append(b, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 9, 0, d.source, 10, 9, 0, 1)
	var sum uint32
	for i := ip; i < len(b); i += 2 {
		sum += uint32(be.Uint16(b[i:]))
	}
	be.PutUint16(b[ip+10:], ^uint16(sum+sum>>16))
	b = be.AppendUint16(be.AppendUint16(b, d.from), d.to)
	b = be.AppendUint16(be.AppendUint16(b, 8+payload), 0) // no checksum
	return append(b, make([]byte, payload)...)
}

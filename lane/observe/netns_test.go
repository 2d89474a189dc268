// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

const queues = 4

func look(t *testing.T, opts observe.Options) *device.State {
	t.Helper()
	st, err := observe.Observe(context.Background(), opts)
	must.Do(t, err)
	return st
}

func setGRO(t *testing.T, on bool) {
	t.Helper()
	et, err := ethtool.Open()
	must.Do(t, err)
	defer et.Close()
	must.Do(t, et.SetFeature(device.Feature{Dev: vethtest.Dev, Name: "rx-gro", On: on}))
}

func TestVeth(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, true)
		st := look(t, observe.Options{})
		var names []string
		for _, d := range st.Devices {
			names = append(names, d.Name)
		}
		// A new namespace may have further devices (tunl0, sit0), if the host has these kinds.
		for _, want := range []string{"lo", vethtest.Dev, vethtest.Peer} {
			if !slices.Contains(names, want) {
				t.Fatalf("devices %v, want %s", names, want)
			}
		}
		if !slices.IsSorted(names) {
			t.Errorf("devices %v are not sorted", names)
		}
		d := st.Device(vethtest.Dev)
		if d.Type != "veth" || d.Driver != "veth" || !d.Up || !d.Carrier || d.Node != -1 {
			t.Errorf("type %q driver %q up %v carrier %v node %d", d.Type, d.Driver, d.Up, d.Carrier, d.Node)
		}
		napis := queues
		if !st.Capabilities.Has(device.CapNetdevGenl) {
			napis = 0 // before Linux 6.8, the kernel does not report NAPIs
		}
		if d.RxQueues != queues || d.TxQueues != queues || len(d.Queues) != 2*queues || len(d.NAPIs) != napis {
			t.Errorf("%d receive and %d transmit queues, %d queues, %d NAPIs", d.RxQueues, d.TxQueues, len(d.Queues),
				len(d.NAPIs))
		}
		if d.Speed == 0 || d.Channels == nil || d.MaxChannels == nil || d.Channels.RX != queues {
			t.Errorf("speed %d, channels %v of %v", d.Speed, d.Channels, d.MaxChannels)
		}
		if !d.Features["rx-gro"].On || len(d.Features) < 40 {
			t.Errorf("rx-gro %+v of %d features", d.Features["rx-gro"], len(d.Features))
		}
		for _, want := range []string{
			"/sys/class/net/v0/threaded", "/sys/class/net/v0/gro_flush_timeout",
			"/sys/class/net/v0/napi_defer_hard_irqs",
			"/sys/class/net/v0/queues/tx-3/xps_cpus", "/sys/class/net/v0/queues/tx-3/xps_rxqs",
			"/sys/class/net/v0/queues/tx-3/tx_maxrate",
			"/sys/class/net/v0/queues/rx-3/rps_cpus", "/sys/class/net/v0/queues/rx-3/rps_flow_cnt",
			"/proc/sys/net/ipv4/conf/v0/arp_announce", "/proc/sys/net/ipv4/conf/v0/arp_ignore",
			"/proc/sys/net/ipv4/conf/v0/arp_notify",
		} {
			if f, ok := st.Files[want]; !ok || f.Path != want || f.Value == "" {
				t.Errorf("file %s: %+v", want, f)
			}
		}
		if f := st.Files["/sys/class/net/v0/queues/tx-0/xps_cpus"]; f.Format != device.FileCPUMask {
			t.Errorf("format of xps_cpus is %q", f.Format)
		}
	})
}

func TestCapabilities(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, true)
		st := look(t, observe.Options{Devices: []string{vethtest.Dev}})
		if len(st.Devices) != 1 {
			t.Fatalf("%d devices were observed, want one", len(st.Devices))
		}
		d := st.Devices[0]
		type finding struct {
			cap  device.Capability
			want device.Answer
			why  string
		}
		tests := []finding{
			{device.CapRSSTable, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapRSSContexts, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapRules, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapRuleToContext, device.No, "no contexts"},
			{device.CapMqprioChannel, device.Unknown, "root qdisc"},
			{device.CapClassGuarantee, device.Unknown, "not known for this driver"},
			{device.CapDriverPollers, device.No, "no tc1_qps_per_poller"},
			{device.CapFlowerHwTC, device.No, "fixed"},
			{device.CapHTBOffload, device.No, "fixed"},
			{device.CapXPS, device.Yes, "xps_cpus"},
			{device.CapXPSRxqs, device.Yes, "xps_rxqs"},
			{device.CapRPS, device.Yes, "rps_cpus"},
			{device.CapCoalesce, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapQueueCoalesce, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapTxMaxrate, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapQueueShaper, device.No, "n"}, // veth has no shaper, or the kernel has none
			{device.CapQueueShaperMin, device.No, "n"},
			{device.CapChannelsSet, device.Yes, "without a change"},
			{device.CapDCB, device.No, unix.EOPNOTSUPP.Error()},
			{device.CapSetAffinityIRQ, device.No, "no IRQ"},
		}
		if st.Capabilities.Has(device.CapNetdevGenl) {
			tests = append(tests,
				finding{device.CapThreadedDev, device.Yes, "threaded"},
				finding{device.CapNAPIs, device.Yes, "4"},
				finding{device.CapQueueNAPI, device.Yes, "ascend"},
				finding{device.CapXDPNative, device.Yes, "xdp-features"},
				finding{device.CapXDPFrags, device.Yes, "xdp-features"})
		} else {
			tests = append(tests,
				finding{device.CapThreadedDev, device.Yes, "present value"},
				finding{device.CapNAPIs, device.Unknown, "family netdev"},
				finding{device.CapQueueNAPI, device.Unknown, "family netdev"},
				finding{device.CapXDPNative, device.Unknown, "family netdev"},
				finding{device.CapXDPFrags, device.Unknown, "family netdev"})
		}
		for _, tt := range tests {
			got, ok := d.Capabilities[tt.cap]
			if !ok || got.Answer != tt.want || !strings.Contains(got.Why, tt.why) {
				t.Errorf("%s: %+v, want %s because of %q", tt.cap, got, tt.want, tt.why)
			}
			delete(d.Capabilities, tt.cap)
		}
		if len(d.Capabilities) != 0 {
			t.Errorf("not in the table: %v", d.Capabilities)
		}
		for _, c := range []device.Capability{
			device.CapMqprio, device.CapHTB, device.CapClsact, device.CapClsBPF, device.CapFlower, device.CapSkbedit,
			device.CapTCX, device.CapNetShaper, device.CapDevlink, device.CapNetdevGenl, device.CapNAPISet,
			device.CapNAPIThread, device.CapNAPIBusy, device.CapCgroupSet, device.CapNetPrio, device.CapIoUringNAPI,
		} {
			f, ok := st.Capabilities[c]
			if !ok || f.Why == "" || f.Answer != device.Yes && f.Answer != device.No && f.Answer != device.Unknown {
				t.Errorf("%s: %+v", c, f)
			}
		}
		// A probe may answer no only with the error that the kernel gives for it.
		for c, f := range st.Capabilities {
			if f.Answer == device.No && c == device.CapMqprio && !strings.Contains(f.Why, unix.ENOENT.Error()) {
				t.Errorf("%s: %+v", c, f)
			}
		}
	})
}

// TestCapabilitiesWithoutNAPI: without GRO, a veth has no NAPI. The finding must not be a final
// no, because GRO can be turned on.
func TestCapabilitiesWithoutNAPI(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, false)
		st := look(t, observe.Options{Devices: []string{vethtest.Dev}})
		d := st.Device(vethtest.Dev)
		if len(d.NAPIs) != 0 {
			t.Skipf("this kernel's veth has %d NAPIs without GRO", len(d.NAPIs))
		}
		for _, c := range []device.Capability{device.CapNAPIs, device.CapQueueNAPI, device.CapThreadedDev} {
			if got := d.Capabilities[c]; got.Answer != device.Unknown {
				t.Errorf("%s: %+v, want unknown", c, got)
			}
		}
		if st.Capabilities.Has(device.CapNetdevGenl) &&
			!strings.Contains(d.Capabilities[device.CapNAPIs].Why, "rx-gro") {
			t.Errorf("%q does not say what would help", d.Capabilities[device.CapNAPIs].Why)
		}
	})
}

func TestEmulatedCard(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		vethtest.AddCard(t, emucard.Config{Queues: queues, Rules: 100, Contexts: 8, LinkRate: 1e9})
		d := look(t, observe.Options{Devices: []string{vethtest.Dev}}).Device(vethtest.Dev)
		if !d.Emulated || d.Speed != 1e9 || d.MaxContexts != 7 || d.RuleCapacity != 100 || len(d.RSS) != 1 ||
			d.RSS[0].Dev != d.Name {
			t.Errorf("emulated %v, speed %d, %d contexts, %d rules, %d tables", d.Emulated, d.Speed, d.MaxContexts,
				d.RuleCapacity, len(d.RSS))
		}
		for _, c := range []device.Capability{device.CapRSSTable, device.CapRSSContexts, device.CapRules,
			device.CapRuleToContext} {
			if got := d.Capabilities[c]; got.Answer != device.Yes || !strings.Contains(got.Why, "emulated") {
				t.Errorf("%s: %+v, want yes of an emulated card", c, got)
			}
		}
		peer := look(t, observe.Options{Devices: []string{vethtest.Peer}}).Device(vethtest.Peer)
		if peer.Emulated || peer.Capabilities.Has(device.CapRules) {
			t.Errorf("the peer is taken for the card: %+v", peer.Capabilities[device.CapRules])
		}
	})
}

func TestDown(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, true)
		vethtest.SetUp(t, vethtest.Dev, false)
		d := look(t, observe.Options{Devices: []string{vethtest.Dev}}).Device(vethtest.Dev)
		if d.Up || d.RxQueues != queues || len(d.Queues) != 2*queues {
			t.Errorf("up %v, %d receive queues, %d queues", d.Up, d.RxQueues, len(d.Queues))
		}
		if got := d.Capabilities[device.CapNAPIs]; got.Answer != device.Unknown {
			t.Errorf("NAPIs of a device that is down: %+v, want unknown", got)
		}
	})
}

// TestRepeatable observes an idle machine twice. The two states must be equal byte by byte:
// observing changes nothing that Observe can see.
func TestRepeatable(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, true)
		configure(t)
		var dumps [2]string
		for i := range dumps {
			b, err := json.MarshalIndent(look(t, observe.Options{Cgroups: []string{"/"}}), "", " ")
			must.Do(t, err)
			dumps[i] = string(b)
		}
		if diff := cmp.Diff(dumps[0], dumps[1]); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
		var back device.State
		must.Do(t, json.Unmarshal([]byte(dumps[0]), &back))
		b, err := json.MarshalIndent(back, "", " ")
		must.Do(t, err)
		if diff := cmp.Diff(dumps[0], string(b)); diff != "" {
			t.Errorf("after decoding and encoding (-want +got):\n%s", diff)
		}
	})
}

// configure sets values that differ from the defaults. If a probe writes another value, the test
// then notices it.
func configure(t *testing.T) {
	t.Helper()
	f, err := hostfs.Open(nil)
	must.Do(t, err)
	defer f.Close()
	for path, value := range map[string]string{
		"/sys/class/net/v0/queues/tx-0/xps_cpus":        "1",
		"/sys/class/net/v0/queues/rx-0/rps_cpus":        "1",
		"/sys/class/net/v0/gro_flush_timeout":           "12345",
		"/sys/class/net/v0/napi_defer_hard_irqs":        "7",
		"/proc/sys/net/ipv4/conf/v0/arp_announce":       "2",
		"/sys/class/net/v0/queues/rx-1/rps_flow_cnt":    "64",
		"/sys/class/net/" + vethtest.Peer + "/threaded": "0",
	} {
		if err := f.WriteFile(path, value); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
	}
}

func TestNoSuchDevice(t *testing.T) {
	vethtest.Run(t, 1, func(t *testing.T) {
		_, err := observe.Observe(context.Background(), observe.Options{Devices: []string{"nosuch0"}})
		if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "nosuch0") {
			t.Errorf("%v, want ENODEV for nosuch0", err)
		}
	})
}

func TestCancelled(t *testing.T) {
	vethtest.Run(t, 1, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := observe.Observe(ctx, observe.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
	})
}

// TestQueueToNAPI tests QuirkNAPIOrder for veth, which does not report the NAPI of a queue: NAPI
// IDs ascend with the receive queue. A packet on transmit queue q of the peer arrives on receive
// queue q (veth_xmit). The receiving socket gets the ID of the NAPI that polled the packet.
func TestQueueToNAPI(t *testing.T) {
	vethtest.Run(t, queues, func(t *testing.T) {
		setGRO(t, true)
		et, err := ethtool.Open()
		must.Do(t, err)
		defer et.Close()
		c, err := netdev.Open(et)
		if err != nil {
			t.Skipf("netdev-genl: %v", err)
		}
		defer c.Close()
		index, err := et.Index(vethtest.Dev)
		must.Do(t, err)
		// A veth gives packets to the peer's NAPI only if it does not segment them itself
		// (veth_skb_is_eligible_for_gro).
		for _, f := range []string{"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation",
			"tx-tcp-mangleid-segmentation"} {
			must.Do(t, et.SetFeature(device.Feature{Dev: vethtest.Peer, Name: f, On: false}))
		}
		vethtest.AddAddress(t, index, [4]byte{10, 9, 0, 1}, 24)
		for round := range 2 { // with the first NAPIs, and with new ones
			if round == 1 {
				setGRO(t, false)
				setGRO(t, true)
			}
			m, err := c.Map(vethtest.Dev)
			must.Do(t, err)
			if m.Quirk == nil {
				t.Fatalf("no quirk was used for %v", m.Queues)
			}
			for _, q := range m.Queues {
				if q.Type != "rx" {
					continue
				}
				if got := napiOfPacket(t, et, q.ID); got != q.NAPI {
					t.Errorf("a packet on receive queue %d was polled by NAPI %d, the rule says %d", q.ID, got, q.NAPI)
				}
			}
		}
	})
}

// napiOfPacket sends a UDP packet on one transmit queue of the peer. It returns the NAPI ID of
// the receiving socket.
func napiOfPacket(t *testing.T, et *ethtool.Client, queue int) uint32 {
	t.Helper()
	fs, err := hostfs.Open(nil)
	must.Do(t, err)
	defer fs.Close()
	all := device.FormatMask(look(t, observe.Options{Devices: []string{vethtest.Peer}, NoProbes: true}).OnlineCPUs())
	for q := range queues { // by XPS, all processors send on this queue
		mask := "0"
		if q == queue {
			mask = all
		}
		path := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", vethtest.Peer, q)
		must.Do(t, fs.WriteFile(path, mask))
	}
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(sock)
	timeout := unix.NsecToTimeval(int64(10e9))
	must.Do(t, unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	must.Do(t, unix.Bind(sock, &unix.SockaddrInet4{Addr: [4]byte{10, 9, 0, 1}}))
	name, err := unix.Getsockname(sock)
	must.Do(t, err)
	sendUDP(t, et, uint16(name.(*unix.SockaddrInet4).Port))
	if _, _, err := unix.Recvfrom(sock, make([]byte, 64), 0); err != nil {
		t.Fatalf("packet on queue %d: %v", queue, err)
	}
	id, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_INCOMING_NAPI_ID)
	must.Do(t, err)
	return uint32(id)
}

// sendUDP sends one packet through the peer to 10.9.0.1, as another host on the link would.
func sendUDP(t *testing.T, et *ethtool.Client, port uint16) {
	t.Helper()
	st := look(t, observe.Options{Devices: []string{vethtest.Dev}, NoProbes: true})
	var dst, src [6]byte
	if _, err := fmt.Sscanf(strings.ReplaceAll(st.Device(vethtest.Dev).MAC, ":", " "), "%x %x %x %x %x %x",
		&dst[0], &dst[1], &dst[2], &dst[3], &dst[4], &dst[5]); err != nil {
		t.Fatal(err)
	}
	src = dst
	src[5] ^= 1
	be := binary.BigEndian
	b := slices.Concat(dst[:], src[:], []byte{0x08, 0x00})
	ip := []byte{0x45, 0, 0, 32, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1}
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	be.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := make([]byte, 12) // checksum 0 means no checksum
	be.PutUint16(udp[0:], 9)
	be.PutUint16(udp[2:], port)
	be.PutUint16(udp[4:], uint16(len(udp)))
	b = slices.Concat(b, ip, udp)

	raw, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	defer unix.Close(raw)
	index, err := et.Index(vethtest.Peer)
	must.Do(t, err)
	must.Do(t, unix.Sendto(raw, b, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6, Protocol: 0x0008}))
}

// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"

	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A family is a generic netlink family for which Debian 12 has no tool: its tools know neither
// net-shaper nor RSS by netlink.
type family struct {
	t    *testing.T
	conn *genetlink.Conn
	genetlink.Family
}

// dial connects to a family. It skips the test if the kernel lacks the family.
func dial(t *testing.T, name string) *family {
	t.Helper()
	conn, err := genetlink.Dial(&netlink.Config{Strict: true})
	must.Do(t, err)
	t.Cleanup(func() { conn.Close() })
	f, err := conn.GetFamily(name)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("not in this kernel: " + name)
	}
	must.Do(t, err)
	return &family{t, conn, f}
}

type encode = func(*netlink.AttributeEncoder)

// try sends a request and returns the answers.
func (f *family) try(cmd uint8, flags netlink.HeaderFlags, body encode) ([]genetlink.Message, error) {
	f.t.Helper()
	ae := netlink.NewAttributeEncoder()
	body(ae)
	b, err := ae.Encode()
	must.Do(f.t, err)
	return f.conn.Execute(genetlink.Message{Header: genetlink.Header{Command: cmd, Version: f.Version}, Data: b}, f.ID,
		netlink.Request|flags)
}

func (f *family) do(cmd uint8, flags netlink.HeaderFlags, body encode) []genetlink.Message {
	f.t.Helper()
	m, err := f.try(cmd, flags, body)
	if err != nil {
		f.t.Fatalf("%s command %d: %v", f.Name, cmd, err)
	}
	return m
}

// attributes returns the top-level attributes of a message.
func (f *family) attributes(m genetlink.Message) map[uint16][]byte {
	f.t.Helper()
	ad, err := netlink.NewAttributeDecoder(m.Data)
	must.Do(f.t, err)
	a := map[uint16][]byte{}
	for ad.Next() {
		a[ad.Type()] = ad.Bytes()
	}
	if ad.Err() != nil {
		f.t.Fatal(ad.Err())
	}
	return a
}

func ifindex(t *testing.T) uint32 {
	t.Helper()
	i := vethtest.Interface(t, bed.Dev)
	return uint32(i.Index)
}

// Numbers from include/uapi/linux/net_shaper.h.
const (
	shaperSet, shaperDelete, shaperGroup, shaperCaps = 2, 3, 4, 5

	shaperHandle, shaperMetric, shaperMin, shaperMax  = 1, 2, 3, 4
	shaperWeight, shaperIfindex, shaperParent, shaped = 7, 8, 9, 10

	scopeNetdev, scopeQueue, scopeNode = 1, 2, 3
)

// handle encodes the handle of a shaper. It leaves out a negative id.
func handle(attr uint16, scope uint32, id int) encode {
	return func(ae *netlink.AttributeEncoder) {
		ae.Nested(attr, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(1, scope)
			if id >= 0 {
				ae.Uint32(2, uint32(id))
			}
			return nil
		})
	}
}

// tenth is a tenth of the test's link rate, in bit/s.
const tenth = 300_000

// TestNetShaper tests rates of queues, of a group of queues, and of the device.
func TestNetShaper(t *testing.T) {
	bed.Plug(t, "queues=3", "channels=3", "speed=3", patience)
	f := dial(t, "net-shaper")
	index := ifindex(t)
	set := func(scope uint32, id int, low, high uint32) error {
		_, err := f.try(shaperSet, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(shaperIfindex, index)
			handle(shaperHandle, scope, id)(ae)
			ae.Uint32(shaperMetric, 0)
			if low > 0 {
				ae.Uint32(shaperMin, low)
			}
			if high > 0 {
				ae.Uint32(shaperMax, high)
			}
		})
		return err
	}
	remove := func(scope uint32, id int) {
		t.Helper()
		f.do(shaperDelete, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(shaperIfindex, index)
			handle(shaperHandle, scope, id)(ae)
		})
	}
	ports := toQueues(t, 3)
	for q, rate := range []uint32{1 * tenth, 2 * tenth, 3 * tenth} {
		must.Do(t, set(scopeQueue, q, 0, rate))
	}
	bed.Ratios(t, "max 1:2:3", bed.Share(t, ports, 3, enough, nil), 1, 2, 3)
	for q := range 3 {
		remove(scopeQueue, q)
	}
	must.Do(t, set(scopeQueue, 1, 6*tenth, 0))
	bed.Ratios(t, "min 0:6:0 of 10", bed.Share(t, ports, 3, 2*enough, nil), 1.33, 7.33, 1.33)
	remove(scopeQueue, 1)
	if err := set(scopeQueue, 1, 20*tenth, 0); err == nil {
		t.Error("more than the link is guaranteed")
	}

	// Queues 0 and 1 together have two tenths. Their weights are 1 and 3.
	answers := f.do(shaperGroup, 0, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(shaperIfindex, index)
		for q, weight := range []uint32{1, 3} {
			ae.Nested(shaped, func(ae *netlink.AttributeEncoder) error {
				handle(shaperHandle, scopeQueue, q)(ae)
				ae.Uint32(shaperWeight, weight)
				return nil
			})
		}
		handle(shaperHandle, scopeNode, -1)(ae)
		handle(shaperParent, scopeNetdev, -1)(ae)
		ae.Uint32(shaperMetric, 0)
		ae.Uint32(shaperMax, 2*tenth)
	})
	if len(answers) != 1 {
		t.Fatalf("%d answers to the group", len(answers))
	}
	bed.Ratios(t, "a group of 2, 1:3, beside 8", bed.Share(t, ports, 3, 2*enough, nil), 0.5, 1.5, 8)
	remove(scopeNode, 0)
	bed.Ratios(t, "weights 1:3 without the group", bed.Share(t, ports[:2], 3, enough, nil)[:2], 1, 3)
	remove(scopeQueue, 0)
	remove(scopeQueue, 1)
	bed.Ratios(t, "nothing any more", bed.Share(t, ports[:2], 3, enough, nil)[:2], 1, 1)

	must.Do(t, set(scopeNetdev, -1, 0, 2_000_000))
	bed.Write(t, "/sys/class/net/sim0/queues/tx-2/tx_maxrate", "1")
	bed.Ratios(t, "1 Mbit/s by tx_maxrate of 2 for the device", bed.Share(t, ports[1:], 3, enough/2, nil)[1:], 1, 1)
	remove(scopeNetdev, -1)
}

// Numbers from include/uapi/linux/ethtool_netlink.h.
const (
	rssGet, rssCreate, rssDelete = 38, 49, 50

	rssHeader, rssContext, rssTable = 1, 2, 4
)

// TestRSSByNetlink creates and deletes an RSS context by netlink, not by ethtool's ioctl.
func TestRSSByNetlink(t *testing.T) {
	bed.Plug(t, "queues=8", "channels=8", "indir=128", "contexts=4")
	bed.NotOn(t, "6.1.", "6.12.")
	f := dial(t, "ethtool")
	header := func(ae *netlink.AttributeEncoder) {
		ae.Nested(rssHeader, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(1, ifindex(t))
			return nil
		})
	}
	var table []byte
	for i := range uint32(128) {
		table = binary.NativeEndian.AppendUint32(table, 4+i%3)
	}
	answers := f.do(rssCreate, 0, func(ae *netlink.AttributeEncoder) {
		header(ae)
		ae.Bytes(rssTable, table)
	})
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	id := binary.NativeEndian.Uint32(f.attributes(answers[0])[rssContext])
	context := func(ae *netlink.AttributeEncoder) {
		header(ae)
		ae.Uint32(rssContext, id)
	}
	got := f.attributes(f.do(rssGet, 0, context)[0])[rssTable]
	if !slices.Equal(got, table) {
		t.Errorf("context %d has the table %v", id, got)
	}
	bed.Sh(t, "ethtool -X sim0 equal 2")
	bed.Sh(t, "ethtool -N sim0 flow-type udp4 dst-port 100 context 1 loc 0")
	for i := range uint16(8) {
		only(t, 8, bed.In(1000+i, 100), 4, 5, 6)
	}
	if _, err := f.try(rssDelete, netlink.Acknowledge, context); err == nil {
		t.Error("a context is removed that a rule uses")
	}
	bed.Sh(t, "ethtool -N sim0 delete 0")
	f.do(rssDelete, netlink.Acknowledge, context)
}

// TestQueueToNAPI tests which NAPI and interrupt netdev-genl shows for each queue.
func TestQueueToNAPI(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=3")
	bed.NotOn(t, "6.1.")
	c, err := netdev.Dial()
	must.Do(t, err)
	defer c.Close()
	index := int(ifindex(t))
	napis, err := c.NAPIs(index)
	if err != nil || len(napis) != 3 {
		t.Fatalf("%d NAPIs (%v), want 3", len(napis), err)
	}
	irq := map[uint32]int{}
	for _, n := range napis {
		irq[n.ID] = n.IRQ
	}
	queues, err := c.Queues(index)
	if err != nil || len(queues) != 6 {
		t.Fatalf("%d queues (%v), want 6", len(queues), err)
	}
	for _, q := range queues {
		n, ok := irq[q.NAPI]
		if !ok {
			t.Errorf("queue %+v has no NAPI", q)
			continue
		}
		name := "simcard-sim0-TxRx-" + strconv.Itoa(q.ID)
		if _, err := os.Stat("/proc/irq/" + strconv.Itoa(n) + "/" + name); err != nil {
			t.Errorf("queue %+v: %v", q, err)
		}
	}
}

// TestQueueStats checks that netdev-genl and ethtool show the same counts.
func TestQueueStats(t *testing.T) {
	bed.Plug(t, "queues=4", "channels=4")
	bed.NotOn(t, "6.1.")
	bed.Sh(t, "ethtool -X sim0 weight 0 1 0 0")
	bed.Send(t, 50, bed.In(1, 9))
	const (
		qstatsGet                          = 12
		qIfindex, qType, qID, qScope, qRxP = 1, 2, 3, 4, 8
	)
	f := dial(t, "netdev")
	found := false
	for _, m := range f.do(qstatsGet, netlink.Dump, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(qIfindex, ifindex(t))
		ae.Uint32(qScope, 1) // scope: one entry for each queue
	}) {
		a := f.attributes(m)
		if a[qRxP] == nil || binary.NativeEndian.Uint32(a[qType]) != 0 || binary.NativeEndian.Uint32(a[qID]) != 1 {
			continue
		}
		found = true
		if got, want := wide(a[qRxP]), bed.Stats(t)["rx_queue_1_packets"]; got != want || got < 50 {
			t.Errorf("queue 1: %d packets by netdev-genl, %d by ethtool, 50 sent", got, want)
		}
	}
	if !found {
		t.Error("no receive queue 1")
	}
}

// wide decodes an unsigned integer of 4 or 8 bytes.
func wide(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/test/simcard/bed"
)

// mlx5 are parameters of a card that behaves like mlx5 with HTB. Its link is slow, because the
// guest is slow. The tests compare the ratios of what lanes send.
var mlx5 = []string{"driver=mlx5_core", "queues=8", "channels=3", "rx_classes=0", "shaper=0", "htb_shares=1", "speed=6",
	"burst_us=100000"}

// htbLanes is a lanes file with two lanes. One has a guarantee of half of the link, the other a
// guarantee and a ceiling of a sixth.
const htbLanes = `
globals:
  dev: sim0
  queues: 1
lanes:
  a:
    queues: 1
    protocol: udp
    ports: [6379]
    guarantee: 3mbit
  b:
    queues: 1
    protocol: udp
    ports: [443]
    guarantee: 1mbit
    ceiling: 1mbit
`

// sendingLanes has the same lanes, but matches them by remote port. So the senders need no fixed
// ports of their own.
var sendingLanes = strings.NewReplacer("ports: [6379]", "remote-ports: [5001]", "ports: [443]",
	"remote-ports: [5002]").Replace(htbLanes)

// Transmit queues of HTB's leaf classes, for the default lane and the two lanes. They come after
// the queues of the three channels.
const (
	leafDefault = 3 + iota
	leafA
	leafB
)

// TestHTB checks that the card enforces the lanes' guarantees and ceilings with its own HTB
// classes. Each lane must send on its class's transmit queue, and verify must see this.
func TestHTB(t *testing.T) {
	h := plug(t, htbLanes, mlx5...)
	before := bed.Dump(t)
	h.applied("htb default 2 offload", "ethtool -K sim0 hw-tc-offload on", "lane a: 3mbit guaranteed, at most 6mbit")
	arrive(t, []int{1}, flowsTo(6379, 3)...)
	arrive(t, []int{0}, flowsTo(7, 3)...)
	bed.Sink(t, 4000)
	leave(t, 6379, []int{leafA})
	leave(t, 7, []int{leafDefault})
	bed.Says(t, verifySending(t, h, 6379, "400ms"),
		"left by its own transmit queue, after those of the channels: 4, none elsewhere",
		"left in class 1:10, none elsewhere")

	// niclane must find and repair changes by other programs. This card refuses to turn the offload
	// off.
	bed.Sh(t, "tc class change dev sim0 parent 1:1 classid 1:10 htb rate 1mbit ceil 2mbit")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "class/sim0/1:10", "guarantee, ceiling")
	h.niclane(0, "apply", h.lanes)
	bed.Refused(t, "ethtool -K sim0 hw-tc-offload off")
	bed.Refused(t, "ethtool -L sim0 combined 2")
	bed.Sh(t, "tc qdisc del dev sim0 root")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "the card's classes are gone")
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "verify", "--for", "0")
	leave(t, 6379, []int{leafA})
	h.restored(before)
}

// TestHTBRates checks that the lanes send at their rates, and that new rates in the file take
// effect. When a lane is removed, the last lane gets its queue.
func TestHTBRates(t *testing.T) {
	h := plug(t, sendingLanes, mlx5...)
	before := bed.Dump(t)
	h.applied("offload")
	ports := []uint16{5000, 5001, 5002}
	bed.Sink(t, ports...)
	got := bed.Share(t, ports, 8, 2*enough, nil)
	bed.Ratios(t, "guarantees 2:3:1 of 6", got[leafDefault:], 2, 3, 1)
	if n := bed.Sum(got[:leafDefault]); n > 0 {
		t.Errorf("the channels' queues sent %d bytes", n)
	}
	got = bed.Share(t, ports[1:], 8, 4*enough, nil) // more bytes, so that bursts matter less
	bed.Ratios(t, "a ceiling of 1 beside the rest of 6", got[leafA:], 5, 1)

	h.write(strings.Replace(sendingLanes, "guarantee: 3mbit", "guarantee: 1mbit\n    ceiling: 1mbit", 1))
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "plan", h.lanes)
	got = bed.Share(t, ports, 8, 2*enough, nil)
	bed.Ratios(t, "changed to 4:1:1 of 6", got[leafDefault:], 4, 1, 1)

	h.write(sendingLanes[:strings.Index(sendingLanes, "  a:")] + sendingLanes[strings.Index(sendingLanes, "  b:"):])
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "plan", h.lanes)
	got = bed.Share(t, ports[1:], 8, enough, nil)
	bed.Ratios(t, "one lane, 5:1 of 6", got[leafDefault:], 5, 1)
	h.restored(before)
}

// verifySending runs verify while a port of the card sends, and returns verify's output.
func verifySending(t *testing.T, h *host, port uint16, lookFor string) (out string) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	c := dialFrom(t, port)
	go func() {
		defer close(done)
		defer c.Close()
		for {
			select {
			case <-stop:
				return
			default:
				c.Write(make([]byte, 1000)) // no error: a full queue may drop the packet
			}
		}
	}()
	_, out = h.run("verify", "--for", lookFor)
	close(stop)
	<-done
	return out
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
)

// trafficLanes is a lanes file with two lanes on the guest's card. The last value to format has
// further members for the first lane.
const trafficLanes = `version: 1
globals:
  dev: %s
  link-rate: 1gbit
lanes:
  stream:
    mode: shared
    rank: 1
    queues: 1
    members:
      - name: numbered
        protocol: udp
        ports: [7]
%s  cache:
    rank: 2
    queues: 1
    ports: [11211]
`

const trafficOthers = `      - name: others
        protocol: udp
        ports: [20000-20099]
`

// proven matches what verify prints for a lane if traffic has proved the lane.
const proven = `(?m)^ok +lane %[1]s on %[2]s, steering: [1-9][0-9]* packets of the lane ` +
	`arrived on processors [0-9,-]+, none elsewhere, no other packets there.*\n` +
	`ok +lane %[1]s on %[2]s, mapper: [1-9][0-9]* packets of the lane ` +
	`left by transmit queues [0-9]+, none elsewhere, no other packets there.*\n` +
	// Lanes that share the link by departure times have no class.
	`(ok +lane %[1]s on %[2]s, bandwidth: [1-9][0-9]* packets of the lane ` +
	`left in class 1:[0-9]+, none elsewhere, no other packets there)?`

// traffic sends packets of two lanes, and others, from the machine through the card. verify must
// prove each lane. While members come and go, the first lane must lose no packet. verify must also
// report packets that take a wrong path.
func traffic(ctx context.Context, niclane string) error {
	dev, err := readyCard(ctx, cardQueues/2)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "traffic")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run := func(code int, args ...string) (string, error) {
		out, err := say(ctx, append([]string{niclane, "--state-dir", filepath.Join(dir, "state")}, args...)...)
		if got := exitCode(err); got != code {
			return "", errors.Join(fmt.Errorf("niclane %s ended with %d, want %d", args[0], got, code), err)
		}
		return out, nil
	}
	lanes := filepath.Join(dir, "lanes.yaml")
	apply := func(members string) error {
		if err := os.WriteFile(lanes, fmt.Appendf(nil, trafficLanes, dev, members), 0o644); err != nil {
			return err
		}
		_, err := run(0, applyHere(lanes)...)
		return err
	}
	echo, err := startEcho("7", "11211", "5000")
	if err != nil {
		return err
	}
	defer echo.Close()
	// Attach the program before the traffic starts. Attaching it restarts the driver's queues, which
	// can lose packets.
	if err := apply(""); err != nil {
		return err
	}
	xdp, err := xdpMode()
	if err != nil {
		return err
	}
	if link, err := say(ctx, "ip", "link", "show", "dev", dev); err != nil || !strings.Contains(link, " "+xdp+" ") {
		return errors.Join(fmt.Errorf("the card runs no %s program", xdp), err)
	}
	peer, flows, err := askPeer()
	if err != nil {
		return err
	}
	defer peer.Close()
	out, err := run(0, "verify", "--for", "1s")
	if err != nil {
		return err
	}
	for _, lane := range []string{"stream", "cache"} {
		if !regexp.MustCompile(fmt.Sprintf(proven, lane, dev)).MatchString(out) {
			return fmt.Errorf("verify does not prove lane %s", lane)
		}
	}
	for _, members := range []string{trafficOthers, ""} {
		if err := errors.Join(apply(members), arrives(ctx, peer, flows...)); err != nil {
			return err
		}
	}
	if err := lossless(ctx, peer, flows[0], dev); err != nil {
		return err
	}
	if _, err := say(ctx, "ip", "link", "set", "dev", dev, xdp, "off"); err != nil {
		return err
	}
	if err := arrives(ctx, peer, flows[1:]...); err != nil {
		return err
	}
	if out, err = run(3, "verify", "--for", "1s"); err != nil {
		return err
	}
	if !strings.Contains(out, "packets handed to no processor") {
		return errors.New("verify does not see packets of a lane that are handed to no processor")
	}
	_, err = run(0, "rollback")
	return err
}

// xdpMode returns the mode that niclane must choose for the card, in the words of ip(8). It is
// native if the kernel reports a driver's features (dev-get, in 6.8 or newer), otherwise generic.
func xdpMode() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	if within(unix.ByteSliceToString(u.Release[:]), "6.8", "") {
		return "xdp", nil
	}
	return "xdpgeneric", nil
}

// askPeer asks the peer for three flows: to the first lane, to the second lane, and to no lane. It
// waits until answers arrive.
func askPeer() (peer *rpc.Client, flows []int, err error) {
	if peer, err = rpc.Dial("tcp4", net.JoinHostPort(peerAddress, peerPort)); err != nil {
		return nil, nil, err
	}
	flows = make([]int, 3)
	for i, w := range []Where{{"udp4", "7"}, {"tcp4", "11211"}, {"tcp4", "5000"}} {
		w.Address = net.JoinHostPort(cardAddress, w.Address)
		err = errors.Join(err, peer.Call("Peer.Start", w, &flows[i]))
	}
	if err = errors.Join(err, arrives(context.Background(), peer, flows...)); err != nil {
		peer.Close()
		return nil, nil, err
	}
	return peer, flows, nil
}

// lossless ends the flow of lane 1 and checks that no packet was lost. If the guest gets no
// processor for a while, two effects are allowed. cake drops packets that have waited for
// milliseconds, and counts them. The tap device forgets a flow's queue after 3 s without packets
// from the guest (TUN_FLOW_EXPIRE, drivers/net/tun.c). Then a packet or two arrive on another queue
// and may overtake others.
func lossless(ctx context.Context, peer *rpc.Client, flow int, dev string) error {
	var x Exchanged
	if err := peer.Call("Peer.End", flow, &x); err != nil {
		return err
	}
	byLane, err := steered(dev, 1)
	if err != nil {
		return err
	}
	dropped, err := cakeDrops(ctx, dev)
	if err != nil {
		return err
	}
	fmt.Printf("of %d packets, %d came back, cake dropped %d, %d were overtaken, %d went by the lane\n", x.Sent,
		x.Answered, dropped, x.Overtaken, byLane)
	if x.Answered > x.Sent || x.Answered+dropped < x.Sent || x.Overtaken*1000 > x.Sent || byLane != x.Sent {
		return errors.New("packets of the lane were lost, overtaken or took another way")
	}
	return nil
}

// cakeDrops returns the number of packets that the cake qdiscs of a device have dropped.
func cakeDrops(ctx context.Context, dev string) (n uint64, err error) {
	out, err := exec.CommandContext(ctx, "tc", "-s", "-j", "qdisc", "show", "dev", dev).Output()
	if err != nil {
		return 0, err
	}
	var qdiscs []struct {
		Kind  string `json:"kind"`
		Drops uint64 `json:"drops"`
	}
	if err := json.Unmarshal(out, &qdiscs); err != nil {
		return 0, fmt.Errorf("tc: %w", err)
	}
	for _, q := range qdiscs {
		if q.Kind == "cake" {
			n += q.Drops
		}
	}
	return n, nil
}

// arrives waits until some more answers have arrived in each flow.
func arrives(ctx context.Context, peer *rpc.Client, flows ...int) error {
	const some = 50
	for _, id := range flows {
		var before, now Exchanged
		if err := peer.Call("Peer.Look", id, &before); err != nil {
			return err
		}
		for end := time.Now().Add(patience); now.Answered < before.Answered+some; {
			if err := peer.Call("Peer.Look", id, &now); err != nil {
				return err
			}
			if ctx.Err() != nil || time.Now().After(end) {
				return fmt.Errorf("flow %d stands still: %+v", id, now)
			}
		}
	}
	return nil
}

// steered returns how many packets the XDP program has given to a lane.
func steered(dev string, lane int) (packets uint64, err error) {
	c, err := tc.Open()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	b := bpf.New(c)
	defer b.Close()
	counters, err := b.XDPCounters(dev)
	for _, x := range counters {
		if x.Lane == lane {
			packets += x.Packets
		}
	}
	return packets, err
}

// echo is a set of servers that send back everything that they receive.
type echo []io.Closer

// startEcho starts a server on one UDP port and servers on TCP ports.
func startEcho(udp string, tcp ...string) (echo, error) {
	p, err := net.ListenPacket("udp4", net.JoinHostPort(cardAddress, udp))
	if err != nil {
		return nil, err
	}
	e := echo{p}
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return // the server is closed
			}
			_, _ = p.WriteTo(b[:n], from) // no error needed: the peer counts missing answers
		}
	}()
	for _, port := range tcp {
		l, err := net.Listen("tcp4", net.JoinHostPort(cardAddress, port))
		if err != nil {
			return e, errors.Join(err, e.Close())
		}
		e = append(e, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // the server is closed
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c) // no error needed: the peer counts missing answers
				}()
			}
		}()
	}
	return e, nil
}

func (e echo) Close() error {
	var errs []error
	for _, c := range e {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/live/services"
)

const (
	requestSize = 100
	answerSize  = 300
)

// A tally has the times of answers.
type tally struct {
	mu sync.Mutex
	at []time.Time
}

func (x *tally) add() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = append(x.at, time.Now())
}

// rate returns the answers per second while the inventory's traffic was watched.
func (x *tally) rate(inv *services.Inventory) float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0.0
	for _, t := range x.at {
		if d := t.Sub(inv.From).Seconds(); d >= 0 && d < inv.Watched {
			n++
		}
	}
	return n / inv.Watched
}

// An echo is a server of the test and clients that send it requests, one after the other.
type echo struct{ tally }

// server answers each request.
func (x *echo) server(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		go func() {
			defer c.Close()
			b := make([]byte, requestSize)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if _, err := c.Write(make([]byte, answerSize)); err != nil {
					return
				}
			}
		}()
	}
}

func (x *echo) client(c net.Conn) {
	b := make([]byte, answerSize)
	for {
		if _, err := c.Write(make([]byte, requestSize)); err != nil {
			return
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		x.add()
		time.Sleep(2 * time.Millisecond) // a rate that the lab carries easily
	}
}

// push sends to each client, which says nothing.
func push(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		go func() {
			defer c.Close()
			for {
				if _, err := c.Write(make([]byte, answerSize)); err != nil {
					return
				}
				time.Sleep(2 * time.Millisecond)
			}
		}()
	}
}

// TestWatch compares the traffic with what the clients counted.
func TestWatch(t *testing.T) {
	vethtest.NeedRoot(t)
	l := labtest.Up(t, lab.Config{Name: fmt.Sprintf("services-%d", os.Getpid()), Queues: 4})
	v4 := net.JoinHostPort(l.Config.IPv4(lab.SUT).String(), "7000")
	v6 := net.JoinHostPort(l.Config.IPv6(lab.SUT).String(), "7000")
	var x echo
	udp := labtest.StartTraffic(t, l)
	defer udp.End()
	var inv *services.Inventory
	labtest.OnHost(t, l, lab.SUT, func(t *testing.T) {
		on, err := net.Listen("tcp", ":7000")
		must.Do(t, err)
		t.Cleanup(func() { on.Close() })
		go x.server(on)
		pushing, err := net.Listen("tcp", ":7001")
		must.Do(t, err)
		t.Cleanup(func() { pushing.Close() })
		go push(pushing)
		local, err := net.Dial("tcp4", "127.0.0.1:7000")
		must.Do(t, err)
		t.Cleanup(func() { local.Close() })
	})
	labtest.OnHost(t, l, lab.Client, func(t *testing.T) {
		for _, to := range []string{v4, v6} {
			c, err := net.Dial("tcp", to)
			must.Do(t, err)
			t.Cleanup(func() { c.Close() })
			go x.client(c)
		}
		c, err := net.Dial("tcp", net.JoinHostPort(l.Config.IPv4(lab.SUT).String(), "7001"))
		must.Do(t, err)
		t.Cleanup(func() { c.Close() })
		go func() { _, _ = io.Copy(io.Discard, c) }()
	})
	if t.Failed() {
		return
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	var datagrams tally
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				udp.Exchange(t, 1)
				datagrams.add()
				time.Sleep(2 * time.Millisecond)
			}
		}
	}()
	var tcp, sent float64
	labtest.OnHost(t, l, lab.SUT, func(t *testing.T) {
		st, err := observe.Observe(t.Context(), observe.Options{NoProbes: true})
		must.Do(t, err)
		inv, err = services.Find(t.Context())
		must.Do(t, err)
		must.Do(t, inv.Watch(t.Context(), st, services.Query{}, time.Second))
		tcp, sent = x.rate(inv), datagrams.rate(inv)
	})
	close(stop)
	<-ended
	// Without a device to count on, the connections' own counters tell.
	labtest.OnHost(t, l, lab.SUT, func(t *testing.T) {
		inv, err := services.Find(t.Context())
		must.Do(t, err)
		must.Do(t, inv.Watch(t.Context(), nil, services.Query{}, 500*time.Millisecond))
		want := x.rate(inv)
		e := find(inv, "tcp/7000")
		if e == nil || e.Traffic == nil || e.Traffic.Source != services.FromSockets ||
			math.Abs(e.Traffic.In.Data-want) > want/10+10 || math.Abs(e.Traffic.Out.Bytes-want*answerSize) > want*answerSize/8 {
			t.Errorf("from sockets: got %+v, want about %.0f requests per second", e, want)
		}
		if e := find(inv, "udp/7"); e == nil || e.Traffic != nil {
			t.Errorf("from sockets: got %+v, want no traffic of UDP", e)
		}
	})
	if inv == nil || t.Failed() {
		return
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/10+5 {
			t.Errorf("%s: got %.0f per second, want about %.0f", what, got, want)
		}
	}
	for of, want := range map[string]struct{ packets, in, out float64 }{
		"tcp/7000": {tcp, requestSize, answerSize},
		"udp/7":    {sent, requestSize, requestSize},
	} {
		e := find(inv, of)
		if e == nil || e.Traffic == nil || e.Traffic.Source != services.FromPackets {
			t.Errorf("%s: got %+v of %+v; notes %q", of, e, inv.Services, inv.Notes)
			continue
		}
		near(of+" requests", e.Traffic.In.Data, want.packets)
		near(of+" answers", e.Traffic.Out.Data, want.packets)
		near(of+" received bytes", e.Traffic.In.Bytes, want.packets*want.in)
		near(of+" sent bytes", e.Traffic.Out.Bytes, want.packets*want.out)
	}
	if e := find(inv, "tcp/7001"); e == nil || e.Traffic == nil || e.Traffic.In.Data > 5 || e.Traffic.In.Packets < 20 ||
		e.Traffic.Out.Data < 20 {
		t.Errorf("acknowledgements without data: got %+v", e)
	}
	if e := find(inv, "tcp/7000"); e != nil && (e.Connections != 2 || e.Local != 1) {
		t.Errorf("got %d connections and %d local ones, want 2 and 1", e.Connections, e.Local)
	}
	if len(inv.Devices) != 1 || len(inv.Devices[0].Queues) == 0 {
		t.Fatalf("devices: %+v", inv.Devices)
	}
	var inQueues float64
	for _, q := range inv.Devices[0].Queues {
		for _, s := range q.Shares {
			if s.Of == "tcp/7000" || s.Of == "udp/7" {
				inQueues += s.Packets
			}
		}
	}
	near("packets in queues", inQueues, find(inv, "tcp/7000").Traffic.In.Packets+find(inv, "udp/7").Traffic.In.Packets)
}

func find(inv *services.Inventory, of string) *services.Endpoint {
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			if e := &inv.Services[i].Endpoints[j]; e.Of() == of {
				return e
			}
		}
	}
	return nil
}

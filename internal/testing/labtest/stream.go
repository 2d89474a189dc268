// SPDX-License-Identifier: Apache-2.0

package labtest

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// A Stream sends numbered UDP packets from the client to EchoPort of the SUT. At most window
// packets are on the way at a time.
type Stream struct {
	from, to *net.UDPConn
	stop     chan struct{}
	sent     uint64
	result   chan Received
	arrived  atomic.Uint64
	turn     chan struct{}
}

// window is the largest number of packets on the way. It is so small that no queue of the kernel
// becomes full. So only a lane can lose a packet.
const window = 16

// Received is the result of a stream.
type Received struct {
	// Lost counts packets that never arrived. Overtaken counts packets that arrived after a packet
	// that was sent later.
	Lost, Overtaken uint64
}

// StartStream starts a stream. The stream runs until End.
func StartStream(t *testing.T, l *lab.Lab) *Stream {
	t.Helper()
	s := &Stream{stop: make(chan struct{}), result: make(chan Received, 1), turn: make(chan struct{}, window)}
	address := &net.UDPAddr{IP: l.Config.IPv4(lab.SUT).AsSlice(), Port: EchoPort}
	var err error
	OnHost(t, l, lab.SUT, func(*testing.T) { s.to, err = net.ListenUDP("udp4", address) })
	must.Do(t, err)
	OnHost(t, l, lab.Client, func(*testing.T) { s.from, err = net.DialUDP("udp4", nil, address) })
	must.Do(t, err)
	must.Do(t, s.to.SetReadBuffer(1<<20))
	done := make(chan struct{})
	go s.send(done)
	go s.receive(done)
	return s
}

// deadline is the longest wait for one packet.
const deadline = 2 * time.Second

func (s *Stream) send(done chan<- struct{}) {
	defer close(done)
	b := make([]byte, 64)
	for n := uint64(1); ; n++ {
		select {
		case <-s.stop:
			return
		case s.turn <- struct{}{}:
		case <-time.After(deadline):
			return // the window is full, because packets were lost
		}
		binary.NativeEndian.PutUint64(b, n)
		if _, err := s.from.Write(b); err != nil {
			return
		}
		s.sent = n
	}
}

func (s *Stream) receive(done <-chan struct{}) {
	var r Received
	var highest, arrived uint64
	b := make([]byte, 2048)
	for {
		select {
		case <-done:
			if arrived == s.sent {
				s.result <- r
				return
			}
		default:
		}
		if err := s.to.SetReadDeadline(time.Now().Add(deadline)); err != nil {
			break
		}
		if _, err := s.to.Read(b); err != nil {
			break
		}
		n := binary.NativeEndian.Uint64(b)
		if n < highest {
			r.Overtaken++
		}
		highest = max(highest, n)
		arrived++
		s.arrived.Store(arrived)
		select {
		case <-s.turn:
		default:
		}
	}
	<-done
	r.Lost = s.sent - arrived
	s.result <- r
}

// Wait waits until a number of further packets has arrived.
func (s *Stream) Wait(t *testing.T, packets uint64) {
	t.Helper()
	want := s.arrived.Load() + packets
	for end := time.Now().Add(10 * time.Second); s.arrived.Load() < want; {
		if time.Now().After(end) {
			t.Fatalf("the stream stands still: %d packets", s.arrived.Load())
		}
		time.Sleep(time.Millisecond)
	}
}

// End ends the stream. It returns how many packets were sent, and the result.
func (s *Stream) End(t *testing.T) (sent uint64, r Received) {
	t.Helper()
	close(s.stop)
	r = <-s.result
	s.from.Close()
	s.to.Close()
	return s.sent, r
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/rpc"
	"sync"
	"time"
)

// The peer is at the other end of the guest card's wire. It is this command on the machine, in the
// network namespace of the tap device. The guest asks it to send traffic.
const (
	peerCommand = "internal-peer"
	peerAddress = "10.99.0.2"
	peerPort    = "9"
	cardAddress = "10.99.0.1"
)

// servePeer accepts connections from guests until it is killed.
func servePeer() error {
	l, err := net.Listen("tcp4", net.JoinHostPort(peerAddress, peerPort))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		p := &Peer{flows: map[int]*flow{}}
		s := rpc.NewServer()
		if err := s.Register(p); err != nil {
			return err
		}
		go func() {
			s.ServeConn(c)
			p.endAll()
		}()
	}
}

// A Peer sends traffic to a guest as long as the guest's connection is open. The guest calls its
// methods through net/rpc.
type Peer struct {
	mu    sync.Mutex
	last  int
	flows map[int]*flow
}

// Where is the argument of Start. Network and Address are as for net.Dial.
type Where struct{ Network, Address string }

// Exchanged counts the packets of a flow.
type Exchanged struct {
	Sent, Answered uint64
	// Overtaken counts answers that arrived after the answer to a later packet.
	Overtaken uint64
}

// Start starts a flow and returns its number.
func (p *Peer) Start(w Where, id *int) error {
	c, err := net.DialTimeout(w.Network, w.Address, patience)
	if err != nil {
		return err
	}
	f := startFlow(c, patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	*id = p.last
	p.flows[*id] = f
	return nil
}

// Look returns the counts of a flow so far.
func (p *Peer) Look(id int, x *Exchanged) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[id]
	if f == nil {
		return errNoFlow
	}
	*x = f.look()
	return nil
}

// End ends a flow. It waits until the last answer has arrived or the flow's patience is over.
func (p *Peer) End(id int, x *Exchanged) error {
	p.mu.Lock()
	f := p.flows[id]
	delete(p.flows, id)
	p.mu.Unlock()
	if f == nil {
		return errNoFlow
	}
	*x = f.end()
	return f.conn.Close()
}

var errNoFlow = errors.New("no such flow")

// endAll ends the flows that the guest did not end.
func (p *Peer) endAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flows {
		f.conn.Close()
		f.end()
	}
	clear(p.flows)
}

const (
	// messageSize is the size of a question and of its answer, in bytes.
	messageSize = 64
	// pace is the pause between two questions. In it, an emulated guest has time for other work.
	pace = 2 * time.Millisecond
	// window is the largest number of unanswered questions. It is so small that no queue of the guest
	// overflows.
	window = 16
	// patience is the time limit for a guest's answers.
	patience = 20 * time.Second
)

// A flow sends numbered questions and counts the answers. An answer is a copy of its question.
type flow struct {
	conn net.Conn
	// patience is how long it waits for an answer.
	patience time.Duration
	stop     chan struct{}
	// waiting has one element for each question that is not yet answered.
	waiting chan struct{}
	ended   chan struct{} // closed when the last answer has arrived

	mu sync.Mutex
	x  Exchanged
}

func startFlow(c net.Conn, patience time.Duration) *flow {
	f := &flow{conn: c, patience: patience, stop: make(chan struct{}), waiting: make(chan struct{}, window),
		ended: make(chan struct{})}
	go f.send()
	go f.receive()
	return f
}

func (f *flow) end() Exchanged {
	close(f.stop)
	<-f.ended
	return f.look()
}

func (f *flow) look() Exchanged {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.x
}

func (f *flow) send() {
	defer close(f.waiting)
	b := make([]byte, messageSize)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := uint64(1); ; {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		select {
		case f.waiting <- struct{}{}:
		default:
			continue
		}
		binary.NativeEndian.PutUint64(b, n)
		if _, err := f.conn.Write(b); err != nil {
			return
		}
		f.mu.Lock()
		f.x.Sent = n
		f.mu.Unlock()
		n++
	}
}

func (f *flow) receive() {
	defer close(f.ended)
	b := make([]byte, messageSize)
	var highest uint64
	for range f.waiting {
		if err := f.conn.SetReadDeadline(time.Now().Add(f.patience)); err != nil {
			return
		}
		if _, err := io.ReadFull(f.conn, b); err != nil {
			return
		}
		n := binary.NativeEndian.Uint64(b)
		f.mu.Lock()
		f.x.Answered++
		if n < highest {
			f.x.Overtaken++
		}
		f.mu.Unlock()
		highest = max(highest, n)
	}
}

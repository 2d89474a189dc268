// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/lab"
)

// A load sends requests on new connections until it is ended.
type load struct {
	b        *bed
	stop     chan struct{}
	done     sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	failed   []failure
	// closings are the times in which listeners closed. closed is how many listeners closed.
	closings []span
	closed   int
}

type span struct{ from, to time.Time }

type failure struct {
	span
	err error
}

// askers is the number of clients that send requests at the same time.
const askers = 3

func (b *bed) load() *load {
	l := &load{b: b, stop: make(chan struct{})}
	for range askers {
		l.done.Add(1)
		go func() {
			defer l.done.Done()
			labtest.OnHost(b.TB, b.lab, lab.Client, func(testing.TB) { l.ask() })
		}()
	}
	return l
}

func (l *load) ask() {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		from := time.Now()
		if _, err := ask(nil); err != nil {
			l.mu.Lock()
			l.failed = append(l.failed, failure{span{from, time.Now()}, err})
			l.mu.Unlock()
		}
		l.answered.Add(1)
	}
}

// more waits until n more answers have arrived.
func (l *load) more(n int64) {
	l.b.Helper()
	want := l.answered.Load() + n
	l.b.until(fmt.Sprintf("%d more answers", n), func() bool { return l.answered.Load() >= want })
}

// closing calls f, during which n listeners close.
func (l *load) closing(n int, f func()) {
	from := time.Now()
	f()
	l.closings, l.closed = append(l.closings, span{from, time.Now()}), l.closed+n
}

// end ends the load. No connection may fail, except for those that the kernel itself loses when a
// listener closes. The kernel sees that the listener listens and makes the connection. If another
// processor closes the listener meanwhile, the kernel resets the connection
// (inet_csk_reqsk_queue_add, net/ipv4/inet_connection_sock.c). Lost connections under this load: 1
// to 4 per 1000 closed listeners with the kernel's own net.ipv4.tcp_migrate_req, 2 per 2400 with
// niclane, and 171 per 1000 without migration (docs/results/2026-11-applications.md).
func (l *load) end() {
	l.b.Helper()
	close(l.stop)
	l.done.Wait()
	lost := 0
	for _, f := range l.failed {
		if l.whileClosing(f.span) {
			lost++
		} else {
			l.b.Errorf("a connection failed while no listener closed: %v", f.err)
		}
	}
	// On a virtual machine more may be lost, because a processor may stop at this moment.
	if most := max(l.closed/12, min(l.closed, 1)); lost > most {
		l.b.Errorf("%d connections failed while %d listeners closed, want at most %d; the first: %v", lost, l.closed,
			most, l.failed[0].err)
	}
	l.b.Logf("%d connections, %d failed while %d listeners closed", l.answered.Load(), lost, l.closed)
}

func (l *load) whileClosing(s span) bool {
	for _, c := range l.closings {
		if s.from.Before(c.to) && s.to.After(c.from) {
			return true
		}
	}
	return false
}

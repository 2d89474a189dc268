// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/lanetest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/observe"
)

// Times of an experiment on a link of 100 Mbit/s, in ns; faster links have as many packets. What arrives
// before the window is not counted.
const (
	warmup = 500e6
	window = 2e9
)

// slowest is the link's rate in Mbit/s if the mechanism says nothing else.
const slowest = 100

// speedup is how many times faster the link is than slowest.
func (m mechanism) speedup() float64 {
	if m.link == 0 {
		return 1
	}
	return m.link / slowest
}

// A source sends datagrams from the device's host. It has so many flows that a lane's queues get about
// equal parts of them, whatever the hash.
type source struct {
	lane  string
	port  uint16
	flows int
	rate  float64 // Mbit/s of frames
	size  int     // payload
}

// load returns what the other lanes and the default lane send.
func (m mechanism) load() []source {
	if m.sources != nil {
		return m.sources
	}
	return sources
}

// headers are the bytes of a frame around a datagram's payload.
const headers = 14 + 20 + 8

var sources = []source{
	{"held", 7002, 128, 60, 1400},
	{"capped", 7003, 128, 30, 1400},
	{"default", 7004, 256, 120, 1400},
}

// Requests of the lane that comes first: how many in a second, flows, and bytes of an answer.
const (
	requests     = 2000
	requestFlows = 64
	answer       = 200
)

// experiment measures a mechanism. It runs as one thread that sends each datagram when it is due,
// and answers each request when it comes.
func experiment(t *testing.T, m mechanism) figures {
	runtime.LockOSThread()
	must.Do(t, unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0))
	s := stageFor(t, m)
	groups := m.groups(t)
	s.here(func() {
		var cgroups []string
		for _, lane := range slices.Sorted(maps.Keys(groups)) {
			cgroups = append(cgroups, "/"+lane)
		}
		makeLanes(t, s.dev, cgroups, m.file(s.dev))
		if m.damage != "" {
			run(t, strings.ReplaceAll(m.damage, "DEV", s.dev))
		}
	})
	first := s.pairs(t, groups["first"], 7001, requestFlows)
	flows := map[string][]pair{}
	warmup, window, speedup := int64(warmup/m.speedup()), int64(window/m.speedup()), m.speedup()
	for _, src := range m.load() {
		flows[src.lane] = s.pairs(t, groups[src.lane], src.port, src.flows)
	}
	sleep(now() + 2e9) // what the kernel does after a device comes up

	var polls []unix.PollFd
	for _, p := range first {
		polls = append(polls, unix.PollFd{Fd: int32(p.here), Events: unix.POLLIN})
	}
	r := rand.New(rand.NewPCG(1, 5))
	start := now() + 1e6
	timers := []*timer{{gap: 1e9 / requests / speedup, send: func(i int) { ask(t, first[i%requestFlows].there) }}}
	for _, src := range m.load() {
		frame := make([]byte, src.size)
		timers = append(timers, &timer{gap: float64(src.size+headers) * 8e3 / (src.rate * speedup), send: func(i int) {
			_, err := unix.SendmsgN(flows[src.lane][i%src.flows].here, frame, nil, nil, unix.MSG_DONTWAIT)
			if err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
				t.Fatal(err)
			}
		}})
	}
	for _, x := range timers {
		x.due = float64(start) + r.ExpFloat64()*x.gap
	}
	end := warmup + window
	for {
		next := slices.MinFunc(timers, func(a, b *timer) int { return int(a.due - b.due) })
		due := int64(next.due)
		if due > start+end {
			break
		}
		if wait := due - now(); wait > 0 {
			ts := unix.NsecToTimespec(wait)
			if n, err := unix.Ppoll(polls, &ts, nil); err != nil && err != unix.EINTR {
				t.Fatal(err)
			} else if n > 0 {
				reply(t, polls)
				continue
			}
		}
		next.send(next.sent)
		next.sent++
		next.due += r.ExpFloat64() * next.gap
	}
	for quiet := now() + 500e6; now() < quiet; { // late answers
		ts := unix.NsecToTimespec(max(1, quiet-now()))
		if n, _ := unix.Ppoll(polls, &ts, nil); n > 0 {
			reply(t, polls)
		}
	}
	return evaluate(first, flows, start+warmup, start+end)
}

// makeLanes makes the lanes of a file on a device of this host.
func makeLanes(t *testing.T, dev string, cgroups []string, file string) {
	t.Helper()
	st, err := observe.Observe(t.Context(), observe.Options{Devices: []string{dev}, Cgroups: cgroups})
	must.Do(t, err)
	k, err := apply.NewKernel("")
	must.Do(t, err)
	t.Cleanup(func() { k.Close() })
	lanetest.Apply(t, k, file, st)
}

// A timer sends at times of a Poisson process. due is in ns of CLOCK_REALTIME.
type timer struct {
	due, gap float64
	sent     int
	send     func(i int)
}

// ask sends a request, which has the time at which it is sent.
func ask(t *testing.T, fd int) {
	if _, err := unix.Write(fd, binary.BigEndian.AppendUint64(nil, uint64(now()))); err != nil {
		t.Fatal(err)
	}
}

// reply answers the requests that have come.
func reply(t *testing.T, polls []unix.PollFd) {
	b := make([]byte, answer)
	for _, p := range polls {
		for p.Revents != 0 {
			if _, _, err := unix.Recvfrom(int(p.Fd), b[:8], unix.MSG_DONTWAIT); err != nil {
				break
			}
			if _, err := unix.SendmsgN(int(p.Fd), b, nil, nil, unix.MSG_DONTWAIT); err != nil && err != unix.EAGAIN &&
				err != unix.ENOBUFS {
				t.Fatal(err)
			}
		}
	}
}

// evaluate reads what has arrived at the other host between two times.
func evaluate(first []pair, flows map[string][]pair, begin, end int64) figures {
	f := figures{}
	var latencies []int64
	count := func(lane string, n int, at int64) {
		if at >= begin && at < end {
			f[lane+" Mbit/s"] += float64(n+headers) * 8e3 / float64(end-begin)
		}
	}
	for _, p := range first {
		receive(p.there, func(b []byte, n int, at int64) {
			if asked := int64(binary.BigEndian.Uint64(b)); asked >= begin && asked < end {
				latencies = append(latencies, at-asked)
			}
			count("first", n, at)
		})
	}
	for lane, pairs := range flows {
		for _, p := range pairs {
			receive(p.there, func(_ []byte, n int, at int64) { count(lane, n, at) })
		}
	}
	slices.Sort(latencies)
	f["answers /s"] = float64(len(latencies)) * 1e9 / float64(end-begin)
	for _, p := range []float64{50, 99, 99.9} {
		if len(latencies) > 0 {
			f[fmt.Sprintf("P%g us", p)] = float64(latencies[int(p/100*float64(len(latencies)-1))]) / 1e3
		}
	}
	return f
}

// receive reads all datagrams of a socket.
func receive(fd int, take func(b []byte, n int, at int64)) {
	b, oob := make([]byte, 8), make([]byte, 64)
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, b, oob, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err != nil {
			return
		}
		take(b, n, timestamp(oob[:oobn]))
	}
}

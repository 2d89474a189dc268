// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Past is what had a processor or queue from At until the time of the next.
type Past struct {
	At uint64 // CLOCK_MONOTONIC, ns
	// A packet has ports, in host byte order, and a protocol. A thread has the process ID and name. An
	// entry without a name says that nothing was recorded.
	Source, Dest uint16
	Protocol     uint16
	Queue        uint16
	PID          uint32
	Comm         string
}

// A Sample is a slow request's wait and what happened meanwhile at the same place.
type Sample struct {
	From, To       uint64 // CLOCK_MONOTONIC, ns
	Service, Stage int
	IfIndex        int
	Queue, CPU     int
	PID            uint32 // the service's process, for stages in which it waited for a processor
	Past           []Past // newest first; the last one may have begun before From
}

// ErrClosed is Sample's error after Close.
var ErrClosed = errors.New("closed")

// The layout of struct sample and struct past in c/front.h.
type (
	rawPast struct {
		At              uint64
		ID              uint32
		Protocol, Queue uint16
		Comm            [16]byte
	}
	rawSample struct {
		From, To                uint64
		Service, Stage, IfIndex uint32
		Queue, CPU              uint16
		N, TGID                 uint32
	}
)

// Sample waits for the next slow request, at most until the deadline. Then the error is
// os.ErrDeadlineExceeded.
func (p *Programs) Sample(deadline time.Time) (Sample, error) {
	p.samples.SetDeadline(deadline)
	record, err := p.samples.Read()
	if err != nil {
		return Sample{}, err
	}
	return parse(record.RawSample)
}

func parse(b []byte) (Sample, error) {
	var r rawSample
	n, err := binary.Decode(b, binary.NativeEndian, &r)
	if err != nil {
		return Sample{}, fmt.Errorf("sample: %w", err)
	}
	s := Sample{From: r.From, To: r.To, Service: int(r.Service), Stage: int(r.Stage), IfIndex: int(r.IfIndex),
		Queue: int(r.Queue), CPU: int(r.CPU), PID: r.TGID}
	for range r.N {
		var x rawPast
		m, err := binary.Decode(b[n:], binary.NativeEndian, &x)
		if err != nil {
			return s, fmt.Errorf("sample: %w", err)
		}
		n += m
		e := Past{At: x.At, Protocol: x.Protocol, Queue: x.Queue, Comm: unix.ByteSliceToString(x.Comm[:])}
		if x.Protocol != 0 {
			e.Source, e.Dest, e.Comm = uint16(x.ID>>16), uint16(x.ID), ""
		} else {
			e.PID = x.ID
		}
		s.Past = append(s.Past, e)
	}
	return s, nil
}

// LostSamples returns how many slow requests the buffer had no room for.
func (p *Programs) LostSamples() (n uint64, err error) {
	err = p.coll.Variables["lost_samples"].Get(&n)
	return n, err
}

// Misses returns how often a program did not run because it ran on that processor already.
func (p *Programs) Misses() (n uint64, err error) {
	for name, prog := range p.coll.Programs {
		s, err := prog.Stats()
		if err != nil {
			return 0, fmt.Errorf("program %s: %w", name, err)
		}
		n += s.RecursionMisses
	}
	return n, nil
}

// A Reader is a process that took a request of a service.
type Reader struct{ Service, PID uint32 }

// Readers returns the processes that took requests since Open, also those that ended.
func (p *Programs) Readers() ([]Reader, error) {
	var out []Reader
	var r Reader
	var one uint8
	all := p.coll.Maps["wait_readers"].Iterate()
	for all.Next(&r, &one) {
		out = append(out, r)
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("readers: %w", err)
	}
	return out, nil
}

// Cost runs for the duration d and returns the processor time and the number of runs of the programs
// in it. The kernel counts them (BPF_ENABLE_STATS, Linux 5.8) only meanwhile, for all programs of the
// host, because counting makes each run some tens of nanoseconds longer.
func (p *Programs) Cost(d time.Duration) (cpu time.Duration, runs uint64, err error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, 0, fmt.Errorf("count the programs' time: %w", err)
	}
	defer stats.Close()
	sum := func() (t time.Duration, n uint64, err error) {
		for name, prog := range p.coll.Programs {
			s, err := prog.Stats()
			if err != nil {
				return 0, 0, fmt.Errorf("program %s: %w", name, err)
			}
			t += s.Runtime
			n += s.RunCount
		}
		return t, n, nil
	}
	t0, n0, err := sum()
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(d)
	t1, n1, err := sum()
	return t1 - t0, n1 - n0, err
}

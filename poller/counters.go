// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// maxNAPIs equals MAX_NAPIS in c/napi.c.
const maxNAPIs = 64

// shared corresponds to struct shared in c/napi.c. The eBPF program and this process both write
// this memory.
type shared struct {
	pidnsDev, pidnsIno uint64
	thread             uint32
	asleep             atomic.Uint32
	napis              atomic.Uint32
	_                  uint32
	napi               [maxNAPIs]napiCounters
}

type napiCounters struct {
	id                       atomic.Uint32
	_                        uint32
	polls, packets           atomic.Uint64
	otherPolls, otherPackets atomic.Uint64
}

// counters counts the polls of NAPIs, by this poller and by others. It also wakes the polling
// thread when a packet arrives. Only open needs privileges.
type counters struct {
	objs   napiObjects
	link   link.Link
	alarm  *ringbuf.Reader
	memory []byte
	*shared
}

// openCounters attaches the eBPF program. The kernel detaches the program when the process ends.
func openCounters() (*counters, error) {
	c := &counters{}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("count polls: %w", err), c.Close())
	}
	return c, nil
}

func (c *counters) open() (err error) {
	if err := loadNapiObjects(&c.objs, nil); err != nil {
		return err
	}
	c.memory, err = unix.Mmap(c.objs.Shared.FD(), 0, int(unsafe.Sizeof(shared{})), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	c.shared = (*shared)(unsafe.Pointer(&c.memory[0]))
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return err
	}
	c.pidnsDev, c.pidnsIno = ns.Dev, ns.Ino
	if c.alarm, err = ringbuf.NewReader(c.objs.Alarm); err != nil {
		return err
	}
	c.link, err = link.AttachTracing(link.TracingOptions{Program: c.objs.NapiPolled})
	return err
}

// Close detaches the program.
func (c *counters) Close() error {
	var errs []error
	if c.link != nil {
		errs = append(errs, c.link.Close())
	}
	if c.alarm != nil {
		errs = append(errs, c.alarm.Close())
	}
	if c.memory != nil {
		errs = append(errs, unix.Munmap(c.memory))
		c.memory, c.shared = nil, nil
	}
	return errors.Join(append(errs, c.objs.Close())...)
}

// of sets the NAPIs to count, at most maxNAPIs, in the order of their queues. Counts belong to a
// position in ids. They stay when the queue at this position gets a NAPI with another ID.
func (c *counters) of(ids []uint32) {
	for i := range c.napi {
		id := uint32(0)
		if i < len(ids) {
			id = ids[i]
		}
		c.napi[i].id.Store(id)
	}
	c.napis.Store(uint32(len(ids)))
}

// sum returns sums over all NAPIs: polls and packets of this poller, then polls and packets of
// others.
func (c *counters) sum() (polls, packets, otherPolls, otherPackets uint64) {
	for i := range c.napis.Load() {
		n := &c.napi[i]
		polls += n.polls.Load()
		packets += n.packets.Load()
		otherPolls += n.otherPolls.Load()
		otherPackets += n.otherPackets.Load()
	}
	return polls, packets, otherPolls, otherPackets
}

// wait sleeps until a packet arrives at one of the NAPIs, but not longer than most. seen is the
// number of packets that the caller knows of. If more have been counted already, wait returns at
// once.
func (c *counters) wait(seen uint64, most time.Duration) error {
	c.asleep.Store(1)
	defer c.asleep.Store(0)
	if _, packets, _, others := c.sum(); packets+others != seen {
		return nil
	}
	c.alarm.SetDeadline(time.Now().Add(most))
	var r ringbuf.Record
	err := c.alarm.ReadInto(&r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

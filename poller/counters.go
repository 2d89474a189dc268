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

// maxNAPIs is MAX_NAPIS of c/napi.c.
const maxNAPIs = 64

// shared is struct shared of c/napi.c, in memory that the program writes too.
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

// counters counts the polls of NAPIs by this poller and by others, and wakes
// who waits for a packet. After open it needs no privilege.
type counters struct {
	objs   napiObjects
	link   link.Link
	alarm  *ringbuf.Reader
	memory []byte
	*shared
}

// openCounters attaches the program, which vanishes with the process.
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

// of has the program count NAPIs, in the order given, at most maxNAPIs. What
// was counted for a place stays: it is the queue's, whatever its NAPI's ID.
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

// packets are those that came by any of the NAPIs, and polls those by this
// poller.
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

// wait sleeps until a packet comes by one of the NAPIs, but no longer than
// for so long. It returns at once if more packets have come than seen.
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

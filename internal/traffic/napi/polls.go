// SPDX-License-Identifier: Apache-2.0

// Package napi counts how often the NAPIs of one device are polled while it is
// open, by an eBPF program at a tracepoint that vanishes with the process: no
// counter of the kernel's has it. A poll costs some tens of nanoseconds more,
// on every device of the host. It needs the kernel's BTF.
package napi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A Count is what happened to one NAPI.
type Count struct {
	NAPI    int    `json:"napi"` // its ID
	Polls   uint64 `json:"polls"`
	Packets uint64 `json:"packets"` // that polls reported as their work
	// Empty polls found nothing, Full ones used up their budget: there was more.
	Empty uint64 `json:"empty"`
	Full  uint64 `json:"full"`
	// Thread are the polls by the NAPI's own thread, and Busy those by a thread
	// that waited for packets (busy polling); the others were softirqs'.
	Thread uint64 `json:"thread"`
	Busy   uint64 `json:"busy"`
}

// A Counter counts until it is closed.
type Counter struct {
	objs pollsObjects
	link link.Link
}

// Open begins to count the polls of the device with this index, in the calling
// thread's network namespace. A kernel without BTF is ebpf.ErrNotSupported, a
// missing privilege EPERM.
func Open(index int) (*Counter, error) {
	c := &Counter{}
	if err := c.open(index); err != nil {
		return nil, errors.Join(fmt.Errorf("count polls: %w", err), c.Close())
	}
	return c, nil
}

func (c *Counter) open(index int) error {
	spec, err := loadPolls()
	if err != nil {
		return err
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return err
	}
	for name, v := range map[string]uint32{"ifindex": uint32(index), "netns": uint32(ns.Ino)} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := spec.LoadAndAssign(&c.objs, nil); err != nil {
		return err
	}
	c.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "napi_poll", Program: c.objs.PollsNapi})
	return err
}

// Read returns the counts since Open, by NAPI ID.
func (c *Counter) Read() ([]Count, error) {
	var out []Count
	var id uint32
	var cells []struct{ Polls, Packets, Empty, Full, Thread, Busy uint64 }
	all := c.objs.PollsCounts.Iterate()
	for all.Next(&id, &cells) {
		n := Count{NAPI: int(id)}
		for _, x := range cells { // of a processor each
			n.Polls += x.Polls
			n.Packets += x.Packets
			n.Empty += x.Empty
			n.Full += x.Full
			n.Thread += x.Thread
			n.Busy += x.Busy
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Compare(a.NAPI, b.NAPI) })
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("counts of polls: %w", err)
	}
	return out, nil
}

// Close ends counting; of no counter it does nothing.
func (c *Counter) Close() error {
	if c == nil {
		return nil
	}
	var err error
	if c.link != nil {
		err = c.link.Close()
	}
	return errors.Join(err, c.objs.Close())
}

// SPDX-License-Identifier: Apache-2.0

// Package napi counts the polls of one device's NAPIs while a Counter is open. It uses an eBPF
// program at a tracepoint, because the kernel has no such counter. The program ends with the
// process. It makes each poll on the host some tens of nanoseconds longer. The package needs
// the kernel's BTF.
package napi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A Count is the number of polls of one NAPI, by kind and result.
type Count struct {
	NAPI    int    `json:"napi"` // the NAPI's ID
	Polls   uint64 `json:"polls"`
	Packets uint64 `json:"packets"` // packets that polls reported as their work
	// Empty counts polls that found no packets, Full polls that used up their budget.
	Empty uint64 `json:"empty"`
	Full  uint64 `json:"full"`
	// Thread counts polls by the NAPI's own thread, Busy polls by a thread that busy-polls. All
	// other polls ran in softirq.
	Thread uint64 `json:"thread"`
	Busy   uint64 `json:"busy"`
}

// A Counter counts until it is closed.
type Counter struct {
	objs pollsObjects
	link link.Link
}

// Open starts to count the polls of the device with this index, in the calling thread's network
// namespace. The error is ebpf.ErrNotSupported if the kernel has no BTF, and EPERM without the
// privilege.
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
		for _, x := range cells { // one for each CPU
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

// Close stops counting. A nil Counter is allowed.
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

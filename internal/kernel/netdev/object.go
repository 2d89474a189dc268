// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// Links tells a device's index and driver. Package internal/kernel/ethtool implements it.
type Links interface {
	// Index returns the interface index, or ENODEV if there is no such device.
	Index(dev string) (int, error)
	// Driver returns the driver's name.
	Driver(dev string) (string, error)
}

// A Client reads and writes device.NAPIConfig and device.Thread objects.
type Client struct {
	Conn    *Conn
	Links   Links
	Release string // uname -r, for quirks

	// polls is the NAPI ID of each receive queue of the interface ifindex. It takes two dumps
	// to find all IDs, but only one request to check a known ID. If a driver recreates its
	// NAPIs, they get new IDs, and the check of an old ID fails.
	polls   map[int]uint32
	ifindex int
}

// Open makes a Client for the calling thread's network namespace. The Client's Close does not
// close links. If the kernel lacks the family, the error is ENOENT.
func Open(links Links) (*Client, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	conn, err := Dial()
	if err != nil {
		return nil, err
	}
	return &Client{Conn: conn, Links: links, Release: unix.ByteSliceToString(u.Release[:])}, nil
}

// Close closes the connection to the kernel.
func (c *Client) Close() error { return c.Conn.Close() }

// Map is one device's queues and NAPIs.
type Map struct {
	Queues []device.Queue // by type and ID, receive first
	NAPIs  []NAPI         // ascending by ID
	// Quirk explains how a queue's NAPI is known although the driver does not report it. It
	// is nil if no quirk was needed.
	Quirk *device.Quirk
}

// Map reads a device's queues and NAPIs and joins them.
func (c *Client) Map(dev string) (Map, error) {
	index, err := c.Links.Index(dev)
	if err != nil {
		return Map{}, err
	}
	var m Map
	queues, err := c.Conn.Queues(index)
	if err != nil {
		return Map{}, fmt.Errorf("%s: %w", dev, err)
	}
	if m.NAPIs, err = c.Conn.NAPIs(index); err != nil {
		return Map{}, fmt.Errorf("%s: %w", dev, err)
	}
	slices.SortFunc(m.NAPIs, func(a, b NAPI) int { return cmp.Compare(a.ID, b.ID) })
	ids := make([]uint32, len(m.NAPIs))
	for i, n := range m.NAPIs {
		ids[i] = n.ID
	}
	for _, q := range queues {
		dq := device.Queue{ID: q.ID, Type: "rx", NAPI: q.NAPI}
		if q.TX {
			dq.Type = "tx"
		}
		m.Queues = append(m.Queues, dq)
	}
	driver, err := c.Links.Driver(dev)
	if err != nil {
		return m, nil // without a driver name there is no quirk
	}
	if q, ok := device.AssignNAPIs(driver, c.Release, m.Queues, ids); ok {
		m.Quirk = &q
	}
	return m, nil
}

// RxQueue returns the lowest receive queue that the NAPI polls, or -1 if none is known.
func (m *Map) RxQueue(id uint32) int {
	for _, q := range m.Queues {
		if q.Type == "rx" && q.NAPI == id {
			return q.ID
		}
	}
	return -1
}

// rx returns the NAPI of a receive queue.
func (m *Map) rx(queue int) (NAPI, bool) {
	for _, q := range m.Queues {
		if q.Type != "rx" || q.ID != queue || q.NAPI == 0 {
			continue
		}
		for _, n := range m.NAPIs {
			if n.ID == q.NAPI {
				return n, true
			}
		}
	}
	return NAPI{}, false
}

// Config returns n's configuration as the device.NAPIConfig of a receive queue.
func (n NAPI) Config(dev string, queue int) device.NAPIConfig {
	threaded := "off"
	switch {
	case n.Threaded == ThreadedBusy:
		threaded = "busy"
	case n.Threaded == ThreadedOn, !n.HasThreaded && n.PID != 0:
		threaded = "on"
	}
	return device.NAPIConfig{
		Dev: dev, Queue: queue, Threaded: threaded, DeferHardIRQs: n.DeferHardIRQs,
		GROFlushTimeout: n.GROFlushTimeout, IRQSuspendTimeout: n.IRQSuspendTimeout,
	}
}

// Read returns the present value of the NAPIConfig or Thread with o's identity. It returns
// nil if the queue has no NAPI, if its NAPI is not known, or if the NAPI has no thread.
func (c *Client) Read(o device.Object) (device.Object, error) {
	dev, queue, err := target(o)
	if err != nil {
		return nil, err
	}
	n, ok, err := c.napi(dev, queue)
	if err != nil || !ok {
		return nil, err
	}
	return value(o, n, dev, queue)
}

// value returns the present value of o, which is the NAPIConfig or the Thread of the NAPI n.
func value(o device.Object, n NAPI, dev string, queue int) (device.Object, error) {
	if _, isThread := o.(device.Thread); !isThread {
		return n.Config(dev, queue), nil
	}
	t, err := ReadThread(n.PID)
	if err != nil || t == nil {
		return nil, err
	}
	t.Dev, t.Queue = dev, queue
	return *t, nil
}

// ReadMany returns what Read returns, for each object. It makes two dumps for each device.
func (c *Client) ReadMany(objects []device.Object) ([]device.Object, error) {
	out := make([]device.Object, len(objects))
	maps := map[string]Map{}
	for i, o := range objects {
		dev, queue, err := target(o)
		if err != nil {
			return nil, err
		}
		m, ok := maps[dev]
		if !ok {
			if m, err = c.Map(dev); err != nil && !errors.Is(err, unix.ENODEV) {
				return nil, err
			}
			maps[dev] = m
		}
		n, ok := m.rx(queue)
		if !ok {
			continue
		}
		if out[i], err = value(o, n, dev, queue); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// napi returns the NAPI of a receive queue; ok is false if there is none.
func (c *Client) napi(dev string, queue int) (n NAPI, ok bool, err error) {
	index, err := c.Links.Index(dev)
	if errors.Is(err, unix.ENODEV) {
		return NAPI{}, false, nil
	}
	if err != nil {
		return NAPI{}, false, err
	}
	if id := c.polls[queue]; id != 0 && c.ifindex == index {
		n, err := c.Conn.NAPI(index, id)
		if !errors.Is(err, unix.ENOENT) {
			return n, err == nil, err
		}
	}
	m, err := c.Map(dev)
	if errors.Is(err, unix.ENODEV) {
		return NAPI{}, false, nil
	}
	if err != nil {
		return NAPI{}, false, err
	}
	c.ifindex, c.polls = index, map[int]uint32{}
	for _, q := range m.Queues {
		if q.Type == "rx" {
			c.polls[q.ID] = q.NAPI
		}
	}
	n, ok = m.rx(queue)
	return n, ok, nil
}

// Write changes a NAPIConfig or Thread to next. If next is nil, Write sets the kernel's
// defaults: a NAPI is not threaded and has no timers; a thread has SCHED_OTHER, nice 0 and all
// CPUs. It cannot remove the object: only features, channel counts and NAPIConfig.Threaded
// create and remove NAPIs and threads.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	dev, queue, err := target(o)
	if err != nil {
		return err
	}
	n, ok, err := c.napi(dev, queue)
	if err != nil {
		return err
	}
	if !ok {
		if next == nil {
			return nil
		}
		return fmt.Errorf("%s: no NAPI is known to poll receive queue %d of %s: %w", o.Key(), queue, dev, unix.ENOENT)
	}
	switch o.(type) {
	case device.Thread:
		var t *device.Thread
		if v, ok := next.(device.Thread); ok {
			t = &v
		}
		if err := WriteThread(n.PID, t); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
		return nil
	default:
		v, ok := next.(device.NAPIConfig)
		if !ok {
			v = device.NAPIConfig{Threaded: "off"}
			if !n.HasThreaded {
				v.Threaded = n.Config(dev, queue).Threaded // before 6.17, a setting of the device
			}
		}
		if err := c.writeConfig(n, v); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
		return nil
	}
}

func (c *Client) writeConfig(n NAPI, v device.NAPIConfig) error {
	want := n
	want.DeferHardIRQs, want.GROFlushTimeout, want.IRQSuspendTimeout = v.DeferHardIRQs, v.GROFlushTimeout,
		v.IRQSuspendTimeout
	switch v.Threaded {
	case "off":
		want.Threaded = ThreadedOff
	case "on":
		want.Threaded = ThreadedOn
	case "busy":
		want.Threaded = ThreadedBusy
	default:
		return fmt.Errorf("threaded %q is not off, on or busy", v.Threaded)
	}
	if !n.HasThreaded {
		if n.PID != 0 {
			n.Threaded = ThreadedOn // as Config shows it
		}
		if want.Threaded != n.Threaded {
			return errNoThreaded
		}
	}
	if want == n {
		return nil
	}
	return c.Conn.SetNAPI(n.ID, n, want)
}

func target(o device.Object) (dev string, queue int, err error) {
	switch o := o.(type) {
	case device.NAPIConfig:
		return o.Dev, o.Queue, nil
	case device.Thread:
		return o.Dev, o.Queue, nil
	}
	return "", 0, fmt.Errorf("object kind %q is not netdev's", o.Kind())
}

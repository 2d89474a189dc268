// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
)

// most is the largest number of endpoints whose packets are counted, and memory the memory for the
// counters, in bytes. With many processors, fewer endpoints are counted.
const (
	most   = 32
	memory = 128 << 20
)

// room returns how many endpoints can be counted. The counters are five tables of 24 bytes for each
// processor, with a row for each endpoint and two more, and as many columns as there are rows,
// processors, or queues (package count).
func room(st *device.State) int {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = 1
	}
	columns := cpus + 1
	for _, d := range st.Devices {
		columns = max(columns, d.RxQueues+1, d.TxQueues+1)
	}
	n := most
	for n > 1 && 5*24*cpus*(n+2)*max(columns, n+2) > memory {
		n--
	}
	return n
}

// The lengths of headers without options, to estimate the payload.
const (
	lenEthernet = 14
	lenIPv4     = 20
	lenIPv6     = 40
	lenUDP      = 8
	lenTCP      = 32 // with timestamps, as Linux sends them
)

// Watch watches traffic for a time. On the devices of st that are among the inventory's Paths, it
// counts the packets of the endpoints. If that is not possible (the kernel has no BTF, no right), it
// takes the counters of TCP connections, and adds a note. If there are too many endpoints to count, those
// of q come first.
func (inv *Inventory) Watch(ctx context.Context, st *device.State, q Query, took time.Duration) error {
	var counted []*Endpoint
	if st != nil {
		counted = inv.countable(q, room(st))
	}
	counters := inv.open(st, counted)
	defer func() {
		for _, c := range counters {
			_ = c.Close()
		}
	}()
	before, err := connections()
	if err != nil {
		return err
	}
	used := inv.processorTime()
	inv.From = time.Now()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(took):
	}
	inv.Watched = time.Since(inv.From).Seconds()
	packets := map[string]count.Counts{}
	for name, c := range counters {
		if packets[name], err = c.Counts(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	after, err := connections()
	if err != nil {
		return err
	}
	for i, was := range used {
		for pid, now := range inv.processorTimeOf(&inv.Services[i]) {
			if t, ok := was[pid]; ok {
				inv.Services[i].CPU += (now - t) / inv.Watched
			}
		}
	}
	if err := inv.bySockets(ctx, before, after); err != nil {
		return err
	}
	for name, c := range packets {
		inv.byPackets(st.Device(name), st, counted, c)
	}
	slices.SortFunc(inv.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// countable returns the endpoints whose packets are counted, at most room: those of q, then TCP by
// connections and UDP, only those that other hosts reach.
func (inv *Inventory) countable(q Query, room int) (out []*Endpoint) {
	asked := map[*Endpoint]bool{}
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			if e := &inv.Services[i].Endpoints[j]; len(e.Devices) > 0 {
				out = append(out, e)
				asked[e] = q != (Query{}) && q.Accepts(&inv.Services[i], e)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *Endpoint) int {
		order := func(e *Endpoint) int { // 0 for UDP ports of servers, 2 for those of clients
			switch {
			case asked[e]:
				return -1
			case e.Protocol == "udp" && e.Ephemeral:
				return 2
			case e.Protocol == "tcp" && e.Connections == 0:
				return 1
			}
			return 0
		}
		return cmp.Or(order(a)-order(b), b.Connections-a.Connections)
	})
	if len(out) > room {
		inv.notef("packets are counted for %d of %d ports, those with most connections", room, len(out))
		out = out[:room]
	}
	return out
}

// open starts to count on the inventory's devices.
func (inv *Inventory) open(st *device.State, counted []*Endpoint) map[string]*count.Watcher {
	counters := map[string]*count.Watcher{}
	if len(counted) == 0 {
		return counters
	}
	var lanes []count.Lane
	for _, e := range counted {
		lanes = append(lanes, count.Lane{Matches: e.matches(counted)})
	}
	for _, p := range inv.Paths {
		d := st.Device(p.Device)
		if d == nil {
			continue
		}
		c, err := count.Open(d, lanes)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EPERM) {
			err = errors.New("needs CAP_BPF and CAP_PERFMON")
		}
		if err != nil {
			inv.notef("no packets counted on %s, so the traffic of UDP and of short TCP connections is not known: %v",
				p.Device, err)
			continue
		}
		counters[p.Device] = c
	}
	return counters
}

// matches describes the packets of an endpoint. They are told by the address too only if another
// endpoint has the same port.
func (e *Endpoint) matches(all []*Endpoint) (out []device.Match) {
	for _, family := range []int{4, 6} {
		m := device.Match{Family: family, Protocol: e.Protocol, LocalPort: e.Port}
		alone := !slices.ContainsFunc(all, func(o *Endpoint) bool {
			return o != e && o.Protocol == e.Protocol && o.Port == e.Port
		})
		if alone {
			out = append(out, m)
			continue
		}
		for _, a := range e.Addrs {
			wide := a.IsUnspecified() && (a.Is6() || family == 4)
			if a.Is4() == (family == 4) || wide {
				m.Local = ""
				if !a.IsUnspecified() {
					m.Local = netip.PrefixFrom(a.WithZone(""), a.BitLen()).String()
				}
				if !slices.Contains(out, m) {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// byPackets adds the packets that were counted on a device.
func (inv *Inventory) byPackets(d *device.Device, st *device.State, counted []*Endpoint, c count.Counts) {
	found := Device{Name: d.Name}
	for _, e := range counted {
		if slices.Contains(e.Devices, d.Name) && (e.Traffic == nil || e.Traffic.Source != FromPackets) {
			e.Traffic = &Traffic{Source: FromPackets}
		}
	}
	queues := map[int]*Queue{}
	affinities := device.Affinities(d.Name, d.IRQs, func(path string) (string, bool) {
		f, ok := st.Files[path]
		return f.Value, ok
	})
	for direction, cells := range [][]count.Cell{c.Received, c.Sent} {
		for _, cell := range cells {
			header, of := lenIPv4+lenTCP, ""
			var e *Endpoint
			if cell.Lane > 0 {
				e = counted[cell.Lane-1]
				header, of = e.header(), e.Of()
			}
			if direction == 1 {
				header += lenEthernet // a received packet is counted without its Ethernet header
			}
			n := counter{packets: cell.Packets, data: cell.Packets - cell.Bare}
			if all := uint64(header) * cell.Packets; cell.Bytes > all {
				n.bytes = cell.Bytes - all
			}
			r := n.per(inv.Watched)
			to, total := &found.In, (*Rate)(nil)
			if e != nil && e.Traffic != nil {
				total = &e.Traffic.In
			}
			if direction == 1 {
				to = &found.Out
				if total != nil {
					total = &e.Traffic.Out
				}
			}
			to.add(r)
			if total != nil {
				total.add(r)
			}
			if direction == 1 || cell.Column >= d.RxQueues {
				continue
			}
			q := queues[cell.Column]
			if q == nil {
				q = &Queue{ID: cell.Column}
				for _, a := range affinities {
					if a.Queue == cell.Column {
						q.CPUs = strings.Join(slices.Compact(slices.Sorted(slices.Values(a.CPUs))), " and ")
					}
				}
				queues[cell.Column] = q
			}
			q.add(of, r.Packets)
		}
	}
	for _, q := range queues {
		slices.SortFunc(q.Shares, func(a, b Share) int {
			return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Of, b.Of))
		})
		found.Queues = append(found.Queues, *q)
	}
	slices.SortFunc(found.Queues, func(a, b Queue) int { return a.ID - b.ID })
	inv.Devices = append(inv.Devices, found)
	if c.Missed > 0 {
		inv.notef("%s: %d packets were not counted: the counting programs ran already on their processors", d.Name,
			c.Missed)
	}
}

// header returns the mean length of the headers of the endpoint's packets, without Ethernet's. The part of
// IPv6 is that of the connections; of UDP, it is known only if all addresses are of one family.
func (e *Endpoint) header() int {
	ip := lenIPv4
	switch {
	case e.Connections > 0:
		ip += (lenIPv6 - lenIPv4) * e.IPv6 / e.Connections
	case !slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return a.Is4() || a.IsUnspecified() }):
		ip = lenIPv6
	}
	if e.Protocol == "udp" {
		return ip + lenUDP
	}
	return ip + lenTCP
}

func (r *Rate) add(x Rate) {
	r.Packets, r.Data, r.Bytes = r.Packets+x.Packets, r.Data+x.Data, r.Bytes+x.Bytes
}

func (q *Queue) add(of string, packets float64) {
	for i := range q.Shares {
		if q.Shares[i].Of == of {
			q.Shares[i].Packets += packets
			return
		}
	}
	q.Shares = append(q.Shares, Share{of, packets})
}

// senders is the largest number of Senders.
const senders = 5

// bySockets adds what the counters of TCP connections say.
func (inv *Inventory) bySockets(ctx context.Context, before, after []connection) error {
	here, err := localAddrs()
	if err != nil {
		return err
	}
	was := map[uint64]connection{}
	for _, c := range before {
		was[c.cookie] = c
	}
	type sum struct{ in, out counter }
	of := map[*Endpoint]*sum{}
	var own []connection // of no listener, with the counters since begin
	for _, c := range after {
		if here.has(c.remote.Addr()) {
			continue
		}
		old, known := was[c.cookie]
		c.in, c.out = c.in.since(old.in), c.out.since(old.out)
		_, e := inv.Endpoint("tcp", c.local)
		if e == nil {
			own = append(own, c)
			continue
		}
		if of[e] == nil {
			of[e] = &sum{}
		}
		of[e].in.add(c.in)
		of[e].out.add(c.out)
		if !known {
			e.Opened += 1 / inv.Watched
		}
	}
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			e := &inv.Services[i].Endpoints[j]
			if e.Protocol != "tcp" || len(e.Devices) == 0 {
				continue
			}
			e.Traffic = &Traffic{Source: FromSockets}
			if s := of[e]; s != nil {
				e.Traffic.In, e.Traffic.Out = s.in.per(inv.Watched), s.out.per(inv.Watched)
			}
		}
	}
	return inv.addSenders(ctx, own)
}

// addSenders finds the processes with the most traffic on connections of no listener.
func (inv *Inventory) addSenders(ctx context.Context, conns []connection) error {
	total := func(c connection) uint64 { return c.in.bytes + c.out.bytes }
	slices.SortStableFunc(conns, func(a, b connection) int { return cmp.Compare(total(b), total(a)) })
	wanted := map[uint64]bool{}
	for _, c := range conns {
		if total(c) > 0 && c.inode != 0 {
			wanted[c.inode] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	t, err := processes(ctx, wanted)
	if err != nil {
		return err
	}
	for _, c := range conns {
		if total(c) == 0 || len(t.holders[c.inode]) == 0 {
			continue
		}
		pid := t.holders[c.inode][0]
		i := slices.IndexFunc(inv.Senders, func(s Sender) bool { return s.Process.PID == pid })
		if i < 0 {
			i = len(inv.Senders)
			inv.Senders = append(inv.Senders, Sender{Process: t.process(pid), RemotePort: c.remote.Port()})
		}
		inv.Senders[i].In += float64(c.in.bytes) / inv.Watched
		inv.Senders[i].Out += float64(c.out.bytes) / inv.Watched
	}
	slices.SortStableFunc(inv.Senders, func(a, b Sender) int { return cmp.Compare(b.In+b.Out, a.In+a.Out) })
	inv.Senders = inv.Senders[:min(len(inv.Senders), senders)]
	return nil
}

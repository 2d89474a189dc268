// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/reuseport"
	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/lane/device"
)

// A Listening describes one listening socket.
type Listening struct {
	Local netip.AddrPort `json:"local"`
	Inode uint64         `json:"inode"`
	PID   int            `json:"pid,omitempty"`
	// Thread is the ID of the thread that serves the listener, 0 if unknown.
	Thread int `json:"thread,omitempty"`
	// CPU is the processor of that thread. If it is unknown, CPU is -1 and Why is the reason.
	CPU int    `json:"cpu"`
	Why string `json:"why,omitempty"`
	// Home is the NUMA node that serves the listener. It is written as the list of the node's
	// processors. It is "" if the node is unknown, or if connections are not led by node.
	Home string `json:"home,omitempty"`
}

// A ListenGroup describes one group of listeners that share a port (SO_REUSEPORT).
type ListenGroup struct {
	Listeners []Listening `json:"listeners"`
	// Led is true if niclane leads connections to the listeners. Why is the reason if it does not, or
	// not for all listeners.
	Led bool   `json:"led"`
	Why string `json:"why,omitempty"`
}

// A QueueCPU is one of a lane's queues and the processor that handles its packets.
type QueueCPU struct {
	Device string `json:"device"`
	Index  int    `json:"index"` // interface index of the device
	Queue  int    `json:"queue"`
	CPU    int    `json:"cpu"`
}

// queueCPUs returns the processor of each of a lane's queues. This is the processor of the NAPI's
// thread or interrupt, if there is exactly one. Otherwise, it is the lane's processor that niclane
// assigns to the queue.
func queueCPUs(l Lane, st *device.State) []QueueCPU {
	var out []QueueCPU
	for _, f := range l.Fitted {
		d := st.Device(f.Device)
		if d == nil {
			continue
		}
		for i, q := range f.Queues {
			x := QueueCPU{Device: f.Device, Index: d.Index, Queue: q, CPU: unknown}
			if cpus := napiCPUs(st, d, q); len(cpus) == 1 {
				x.CPU = cpus[0]
			} else if len(f.CPUs) > 0 {
				x.CPU = f.CPUs[i%len(f.CPUs)]
			}
			out = append(out, x)
		}
	}
	return out
}

// napiCPUs returns the processors that may poll the NAPI of a receive queue, nil if unknown.
func napiCPUs(st *device.State, d *device.Device, queue int) []int {
	for _, n := range d.NAPIs {
		if n.Config.Queue != queue {
			continue
		}
		if n.Thread != nil {
			return n.Thread.CPUs
		}
		if f, ok := st.Files[fmt.Sprintf("/proc/irq/%d/smp_affinity_list", n.IRQ)]; ok && n.IRQ > 0 {
			if cpus, err := device.ParseCPUList(f.Value); err == nil {
				return cpus
			}
		}
	}
	return nil
}

// checkListeners returns an error if another application's record already has one of the ports.
func (s *Store) checkListeners(r *Record) error {
	all, err := s.Here()
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Listeners == nil {
			continue
		}
		for _, p := range r.Listeners.Ports {
			if slices.Contains(x.Listeners.Ports, p) {
				return fmt.Errorf("port %d: connections are led to listeners of process %d already: niclane detach "+
					"--pid %d first", p, x.Process.PID, x.Process.PID)
			}
		}
	}
	return nil
}

// A leader leads one application's connections to listeners.
type leader struct {
	record *Record
	queues []QueueCPU
	set    map[uint64]reuseport.Tables // tables as last written, by SO_REUSEPORT group
	// keep records a thread and its affinity before the leader pins the thread.
	keep func(Thread) error
	// pids returns the application's processes. If pids is nil, they are the processes in the record's
	// group.
	pids func() ([]int, error)
	// arrival makes tables by the processor on which packets arrive. If arrival is nil, the leader
	// makes tables by the lane's queues.
	arrival *arrival
}

func (ld *leader) processes() ([]int, error) {
	if ld.pids != nil {
		return ld.pids()
	}
	return ld.record.Groups[0].processes()
}

// look finds the application's listeners. It leads connections to those listeners whose thread and
// processor are known.
func (ld *leader) look() ([]ListenGroup, error) {
	pids, err := ld.processes()
	if err != nil {
		return nil, err
	}
	socks, err := sockiter.List(sockiter.Filter{Ports: ld.record.Listeners.Ports, Listeners: true})
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	groups := map[uint64][]sockiter.Socket{}
	var order []uint64
	var alone []sockiter.Socket
	for _, s := range socks {
		inodes[s.Inode] = true
		if s.Group == 0 {
			alone = append(alone, s)
			continue
		}
		if groups[s.Group] == nil {
			order = append(order, s.Group)
		}
		groups[s.Group] = append(groups[s.Group], s)
	}
	d := find(pids, inodes)
	servers := d.servers()
	var out []ListenGroup
	for _, s := range alone {
		if len(d.holders[s.Inode]) > 0 {
			out = append(out, ListenGroup{Listeners: []Listening{describe(s, servers[s.Inode])},
				Why: "it is the only listener there, without SO_REUSEPORT: there is nothing to choose"})
		}
	}
	for _, g := range order {
		if ours := d.ours(groups[g]); ours > 0 {
			out = append(out, ld.lead(g, groups[g], ours, d, servers))
		}
	}
	return out, nil
}

// ours returns how many of the sockets belong to the application's processes.
func (d descriptors) ours(socks []sockiter.Socket) int {
	n := 0
	for _, s := range socks {
		if len(d.holders[s.Inode]) > 0 {
			n++
		}
	}
	return n
}

func describe(s sockiter.Socket, by server) Listening {
	l := Listening{Local: s.Local, Inode: s.Inode, PID: by.pid, Thread: by.tid}
	l.CPU, l.Why = by.processor()
	return l
}

// lead leads connections to the listeners of one SO_REUSEPORT group. ours is how many of them
// belong to the application.
func (ld *leader) lead(id uint64, socks []sockiter.Socket, ours int, d descriptors,
	servers map[uint64]server) ListenGroup {
	// Sort by creation: the kernel's inode numbers ascend.
	slices.SortFunc(socks, func(a, b sockiter.Socket) int { return int(int64(a.Inode) - int64(b.Inode)) })
	var g ListenGroup
	for _, s := range socks {
		g.Listeners = append(g.Listeners, describe(s, servers[s.Inode]))
	}
	ld.findHomes(g.Listeners, d)
	switch {
	case ours < len(socks):
		g.Why = fmt.Sprintf("%d of %d listeners are another application's", len(socks)-ours, len(socks))
		return g
	case len(socks) == 1:
		g.Why = "it is the only listener there: there is nothing to choose"
		return g
	case socks[0].Picked && socks[0].Program == 0:
		g.Why = "the application has a classic BPF program of its own there, and niclane leaves it"
		return g
	}
	if err := ld.place(g.Listeners); err != nil {
		g.Why = err.Error()
		return g
	}
	if err := ld.apply(id, socks, d, &g); err != nil {
		g.Led, g.Why = false, err.Error()
	}
	return g
}

// place sets the processors of the listeners. If the user gave processors, it takes these.
// Otherwise, if the user asked for it, it pins the listeners' threads to processors of the lane.
func (ld *leader) place(ls []Listening) error {
	if told := ld.record.Listeners.CPUs; told != nil {
		if len(told) != len(ls) {
			return fmt.Errorf("found %d processors for %d listeners, want one for each", len(told), len(ls))
		}
		for i := range ls {
			ls[i].CPU, ls[i].Why = told[i], ""
		}
		return nil
	}
	if !ld.record.Listeners.Pin {
		return nil
	}
	cpus := ld.record.Lane.CPUs()
	used := map[int]int{}
	for _, l := range ls {
		if l.CPU != unknown {
			used[l.CPU]++
		}
	}
	for i := range ls {
		l := &ls[i]
		if l.CPU != unknown || l.Thread == 0 || len(cpus) == 0 {
			continue
		}
		best := slices.MinFunc(cpus, func(a, b int) int { return used[a] - used[b] })
		p, err := FindProcess(l.Thread)
		if err != nil {
			continue // the thread ended
		}
		was, err := affinity(l.Thread)
		if err == nil {
			err = ld.keep(Thread{Process: p, Was: was})
		}
		if err == nil {
			err = setAffinity(l.Thread, []int{best})
		}
		if err != nil {
			l.Why = fmt.Sprintf("thread %d to processor %d: %v", l.Thread, best, err)
			continue
		}
		used[best]++
		l.CPU, l.Why = best, ""
	}
	return nil
}

// apply writes the program and the tables of a group.
func (ld *leader) apply(id uint64, socks []sockiter.Socket, d descriptors, g *ListenGroup) error {
	tables, placed := ld.tables(g.Listeners)
	if placed == 0 && !socks[0].Picked {
		g.Why = "niclane does not know the processor of any of its listeners: the kernel's hash still chooses"
		return nil
	}
	p, err := ld.picker(socks, d)
	if err != nil {
		return err
	}
	defer p.Close()
	slots, err := p.Sockets()
	if err != nil {
		return err
	}
	slot := make([]uint32, len(socks))
	free := freeSlots(slots)
	for i, s := range socks {
		if at, ok := slots[s.Cookie]; ok {
			slot[i] = at
			continue
		}
		if len(free) == 0 {
			return fmt.Errorf("more than %d listeners", reuseport.MaxSockets)
		}
		slot[i], free = free[0], free[1:]
		if err := d.use(s, func(fd int) error { return p.Put(slot[i], fd) }); err != nil {
			return err
		}
	}
	want := tables.with(slot)
	if !reflect.DeepEqual(ld.set[id], want) {
		if err := p.Set(want); err != nil {
			return err
		}
		ld.set[id] = want
	}
	g.Led = placed > 0
	if placed < len(socks) {
		g.Why = fmt.Sprintf("of %d listeners, %d are served on a known processor", len(socks), placed)
	}
	return nil
}

// picker returns the group's picker: one that a killed keeper left, or a new one.
func (ld *leader) picker(socks []sockiter.Socket, d descriptors) (*reuseport.Picker, error) {
	if socks[0].Picked {
		p, err := reuseport.Open(socks[0].Program)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("another program's BPF program chooses among these listeners, and stays: %w", err)
		}
		return p, err
	}
	p, err := reuseport.New()
	if err != nil {
		return nil, err
	}
	// Attach the picker before its tables are filled. Its tables are empty now, so the kernel's hash
	// still chooses. But if a listener closes from now on, the kernel already moves its waiting
	// connections to other listeners.
	if err := d.use(socks[0], p.Attach); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func freeSlots(taken map[uint64]uint32) []uint32 {
	used := map[uint32]bool{}
	for _, slot := range taken {
		used[slot] = true
	}
	var free []uint32
	for slot := range uint32(reuseport.MaxSockets) {
		if !used[slot] {
			free = append(free, slot)
		}
	}
	return free
}

// A spreading has the tables before the listeners have slots. Its lists contain the indexes of
// listeners.
type spreading struct {
	devices []uint32
	queues  []QueueCPU
	lists   [][]int
	cpus    map[int][]int // lists by processor, for packets that no queue's list serves
}

// tables distributes the lane's queues over the listeners. placed is the number of listeners whose
// processor is known.
func (ld *leader) tables(ls []Listening) (s spreading, placed int) {
	if ld.arrival != nil {
		return ld.arrival.tables(ls)
	}
	if len(ld.record.Lane.Nodes) > 0 {
		return ld.tablesByNode(ls)
	}
	var queues, listeners []int
	for _, q := range ld.queues {
		queues = append(queues, q.CPU)
		if i := uint32(q.Index); !slices.Contains(s.devices, i) {
			s.devices = append(s.devices, i)
		}
	}
	for _, l := range ls {
		listeners = append(listeners, l.CPU)
		if l.CPU != unknown {
			placed++
		}
	}
	s.queues, s.lists = ld.queues, spread(queues, listeners)
	return s, placed
}

// with returns the tables of s. In them, each listener's index is replaced by its slot.
func (s spreading) with(slot []uint32) reuseport.Tables {
	t := reuseport.Tables{Devices: s.devices, Queues: map[reuseport.Queue]reuseport.QueueTable{},
		CPUs: map[uint32][]uint32{}}
	for i, q := range s.queues {
		if len(s.lists[i]) == 0 {
			continue
		}
		var slots []uint32
		for _, l := range s.lists[i] {
			slots = append(slots, slot[l])
		}
		t.Queues[reuseport.Queue{Index: uint32(q.Index),
			Queue: uint32(q.Queue)}] = reuseport.QueueTable{CPU: int32(q.CPU), Slots: slots}
		t.CPUs[uint32(q.CPU)] = append(t.CPUs[uint32(q.CPU)], slots...)
	}
	for cpu, list := range s.cpus {
		for _, l := range list {
			t.CPUs[uint32(cpu)] = append(t.CPUs[uint32(cpu)], slot[l])
		}
	}
	return t
}

// use calls f with a duplicate of a listener's descriptor, and then closes the duplicate. A
// duplicate must not stay open: after the application has closed the listener, the kernel would
// still give the duplicate connections, and nothing would accept them.
func (d descriptors) use(s sockiter.Socket, f func(fd int) error) error {
	for _, h := range d.holders[s.Inode] {
		pidfd, err := unix.PidfdOpen(h.pid, 0)
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(pidfd, h.fd, 0)
		unix.Close(pidfd)
		if err != nil {
			continue
		}
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil || cookie != s.Cookie { // by now the descriptor's number belongs to another file
			unix.Close(fd)
			continue
		}
		err = f(fd)
		unix.Close(fd)
		return err
	}
	return fmt.Errorf("listener %s (inode %d) closed meanwhile", s.Local, s.Inode)
}

// releaseListeners detaches niclane's programs. The kernel's hash then chooses again.
func (r *Record) releaseListeners() error {
	if r.Listeners == nil || len(r.Groups) == 0 {
		return nil
	}
	pids, err := r.Groups[0].processes()
	if err != nil || len(pids) == 0 {
		return err // without a process, the sockets are closed and the program is gone
	}
	socks, err := sockiter.List(sockiter.Filter{Ports: r.Listeners.Ports, Listeners: true})
	if err != nil {
		return err
	}
	inodes := map[uint64]bool{}
	for _, s := range socks {
		inodes[s.Inode] = true
	}
	d := find(pids, inodes)
	done := map[uint64]bool{}
	var errs []error
	for _, s := range socks {
		if !s.Picked || done[s.Group] || len(d.holders[s.Inode]) == 0 {
			continue
		}
		p, err := reuseport.Open(s.Program)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another owner's program chooses
		}
		if err == nil {
			err = errors.Join(d.use(s, reuseport.Detach), p.Close())
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done[s.Group] = true
	}
	return errors.Join(errs...)
}

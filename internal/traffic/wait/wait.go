// SPDX-License-Identifier: Apache-2.0

// Package wait follows requests through this host by eBPF programs at tracepoints and at three functions,
// and counts their waits in the kernel. It loads, attaches, reads and detaches the programs. It refuses to
// interpret: package live/waits does that. It needs BTF, Linux 5.10, CAP_BPF and CAP_PERFMON, and before Linux
// 5.11 CAP_SYS_RESOURCE.
package wait

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// The limits and the shape of c/wait.h.
const (
	MaxServices = 64
	Stages      = 7
	Buckets     = (36-7)*64 + 128
)

// A Service is a set of sockets, by local address. Its number is its index in Options.Services.
type Service struct {
	NetNS    uint32 // inode number of the network namespace
	Protocol uint8  // 6: TCP, 17: UDP
	Ports    []uint16
	Addrs    []netip.Prefix // local; none: all
}

// Options say what to follow.
type Options struct {
	Services []Service
	// Device is the index of the device in the calling thread's network namespace by which requests
	// come and answers go; 0: any.
	Device int
	// CgroupRoot is where control groups of version 2 are mounted. Programs there see an application
	// take a datagram. "": UDP's reads are not seen, so no UDP request is measured.
	CgroupRoot string
	// Completions says that a device has transmit completions: it is a card.
	Completions bool
}

// Programs are the loaded programs, until Close.
type Programs struct {
	coll        *ebpf.Collection
	links       []link.Link
	epoch       uint32
	threads     link.Link                  // of threadsProgram, or nil
	spells      uint32                     // how often threadsProgram was attached
	root        string                     // of the control groups
	attachTypes map[string]ebpf.AttachType // by program
	shards      uint32
	ports       [2][65536]uint8 // 1: a service's
	samples     *ringbuf.Reader
	stamps      int // a socket; while it is open, the kernel stamps received packets
	// Has lists the tracepoints and functions that this kernel has and the programs are attached to.
	Has []string
}

// required are the tracepoints without which there is nothing to measure. All kernels have them since
// 4.16.
var required = []string{"netif_receive_skb", "tcp_probe", "tcp_rcv_space_adjust", "net_dev_queue",
	"net_dev_start_xmit"}

// Open loads the programs. Nothing is attached before Attach.
func Open(o Options) (*Programs, error) {
	if len(o.Services) == 0 || len(o.Services) > MaxServices {
		return nil, fmt.Errorf("%d services: want 1 to %d", len(o.Services), MaxServices)
	}
	p := &Programs{stamps: -1}
	if err := p.open(o); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Programs) open(o Options) error {
	spec, err := loadWait()
	if err != nil {
		return err
	}
	version, err := features.LinuxVersionCode()
	if err != nil {
		return fmt.Errorf("the kernel's version: %w", err)
	}
	old := version < reattach
	if err := p.prune(spec, o, version); err != nil {
		return err
	}
	if old {
		conns := spec.Maps["wait_conns"]
		conns.Type, conns.Flags, conns.MaxEntries = ebpf.LRUHash, 0, maxSockets
		conns.Key, conns.KeySize = nil, 8
		// Before Linux 5.11, maps count as locked memory, for which the usual limit is too low. Without the
		// right to raise it, the kernel refuses the first map.
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return err
	}
	p.shards = 1
	for int(p.shards) < min(runtime.NumCPU(), 8) {
		p.shards *= 2
	}
	spec.Maps["wait_times"].MaxEntries = uint32(len(o.Services)) * Stages * p.shards
	number := map[bool]uint32{true: 1}
	for name, v := range map[string]uint32{"device": uint32(o.Device), "device_netns": uint32(ns.Ino),
		"shards": p.shards, "by_address": number[old], "taken_first": number[version >= takenFirst]} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// Without the rights, the kernel refuses this map with EPERM, and sk_storage with EINVAL, since it
	// has no types either. The order in which a collection makes its maps is random.
	rights, err := ebpf.NewMap(spec.Maps["wait_services"])
	if errors.Is(err, unix.EPERM) {
		return unix.EPERM // the library adds a guess about limits of memory
	}
	if err != nil {
		return fmt.Errorf("create a map: %w", err)
	}
	if err := rights.Close(); err != nil {
		return err
	}
	if p.coll, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	if err := p.SetClock(); err != nil {
		return err
	}
	if p.samples, err = ringbuf.NewReader(p.coll.Maps["wait_samples"]); err != nil {
		return fmt.Errorf("samples: %w", err)
	}
	for i, s := range o.Services {
		if err := p.add(uint32(i), s); err != nil {
			return err
		}
	}
	if p.stamps, err = stampPackets(); err != nil {
		return fmt.Errorf("timestamps of received packets: %w", err)
	}
	p.root = o.CgroupRoot
	p.attachTypes = map[string]ebpf.AttachType{}
	for name, prog := range spec.Programs {
		p.attachTypes[name] = prog.AttachType
	}
	return nil
}

// takenFirst is Linux 6.12, since which xdp_cpumap_kthread comes before the packets are in the stack
// ("bpf: cpumap: Move xdp:xdp_cpumap_kthread tracepoint before rcv").
const takenFirst = 6<<16 | 12<<8

// reattach is Linux 5.13. Before it, a program of a function can be attached only once ("bpf: Allow trampoline
// re-attach for tracing and lsm programs"), so no function is used. Before 5.11, tracing programs have no
// storage of sockets (8e4597c627fb), so at most maxSockets sockets are followed at the same time.
const (
	reattach   = 5<<16 | 13<<8
	maxSockets = 16384
)

// deferFree is the kernel's function that hands a packet to the processor that made it, to free it. Since Linux
// 6.19, sent packets pass it too (e20dfbad8aab); before, only received ones do.
const (
	deferFree  = "skb_attempt_defer_free"
	defersSent = 6<<16 | 19<<8
)

// threadsProgram is the program that remembers which threads the processors run. On a host with many
// switches of threads it costs most.
const threadsProgram = "wait_sched_switch"

// Attach attaches the programs, without threadsProgram. Requests that arrive from now on are followed.
// After an error, no program is attached.
func (p *Programs) Attach() error {
	if len(p.links) > 0 {
		return errors.New("attached already")
	}
	p.epoch++
	if err := errors.Join(p.coll.Variables["epoch"].Set(p.epoch), p.Finish()); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.coll.Programs)) {
		if name == threadsProgram {
			continue
		}
		l, err := p.attach(name)
		if err != nil {
			return errors.Join(err, p.Detach())
		}
		p.links = append(p.links, l)
	}
	// Not before: a request whose read is not seen yet would end with a later one's.
	if err := p.coll.Variables["accepting"].Set(uint32(1)); err != nil {
		return errors.Join(err, p.Detach())
	}
	return nil
}

// Finish follows the requests that have arrived, and no others, until the programs are detached.
func (p *Programs) Finish() error { return p.coll.Variables["accepting"].Set(uint32(0)) }

// Threads attaches threadsProgram, or detaches it. What it remembered before is void.
func (p *Programs) Threads(on bool) error {
	var spell uint32
	var err error
	switch {
	case on == (p.threads != nil):
		return nil
	case on:
		if p.threads, err = p.attach(threadsProgram); err != nil {
			return err
		}
		p.spells++
		spell = p.spells
	default:
		err = p.threads.Close()
		p.threads = nil
	}
	return errors.Join(err, p.coll.Variables["threads"].Set(spell))
}

func (p *Programs) attach(name string) (l link.Link, err error) {
	if prog := p.coll.Programs[name]; prog.Type() == ebpf.CGroupSockAddr {
		l, err = link.AttachCgroup(link.CgroupOptions{Path: p.root, Attach: p.attachTypes[name], Program: prog})
	} else {
		l, err = link.AttachTracing(link.TracingOptions{Program: prog})
	}
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", name, err)
	}
	return l, nil
}

// Detach detaches the programs. Requests that are under way are not counted.
func (p *Programs) Detach() error {
	errs := []error{p.Threads(false)}
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// need says which tracepoints and functions only some measurements need.
func (o *Options) need(tracepoint string, version uint32, has func(string) bool) bool {
	old := version < reattach
	uses := func(protocol uint8) bool {
		return slices.ContainsFunc(o.Services, func(s Service) bool { return s.Protocol == protocol })
	}
	switch tracepoint {
	case "tcp_probe", "tcp_rcv_space_adjust", "tcp_retransmit_skb", "tcp_sendmsg_locked":
		return uses(unix.IPPROTO_TCP)
	case "tcp_destroy_sock":
		return uses(unix.IPPROTO_TCP) && old
	case "sock_send_length":
		return uses(unix.IPPROTO_TCP) && !has("tcp_sendmsg_locked")
	case "sk_data_ready", "sock_recv_length":
		return uses(unix.IPPROTO_UDP)
	case "": // the programs of control groups
		return uses(unix.IPPROTO_UDP) && o.CgroupRoot != ""
	case "consume_skb":
		return o.Completions
	case deferFree:
		return o.Completions && version >= defersSent
	case "sched_waking": // it runs for all threads of the host; NAPI threads are new in Linux 5.12
		return !old && !has(napiSchedule)
	}
	return true
}

// napiSchedule is the kernel's function by which an interrupt asks for the poll of a NAPI. It has a variant
// with "_irqoff" behind.
const napiSchedule = "__napi_schedule"

// fentry reports whether programs can be attached to that function. It needs the kernel's function
// tracer, and on arm64 Linux 6.4.
func fentry() bool {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry,
		AttachTo: napiSchedule, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return false
	}
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	return err == nil && l.Close() == nil
}

// prune removes from spec what is not needed, and what this kernel has no tracepoint for.
func (p *Programs) prune(spec *ebpf.CollectionSpec, o Options, version uint32) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("the kernel's types: %w", err)
	}
	functions := version >= reattach && fentry()
	has := func(point string) bool {
		if point == deferFree || strings.HasPrefix(point, napiSchedule) {
			var f *btf.Func
			return functions && kernel.TypeByName(point, &f) == nil
		}
		if point == "kfree_skb" { // before Linux 5.17, it does not tell drops from other ends
			var reasons *btf.Enum
			return kernel.TypeByName("skb_drop_reason", &reasons) == nil
		}
		var t *btf.Typedef
		return kernel.TypeByName("btf_trace_"+point, &t) == nil
	}
	for name, prog := range spec.Programs {
		switch {
		case prog.AttachTo == "":
		case has(prog.AttachTo):
			p.Has = append(p.Has, prog.AttachTo)
		case slices.Contains(required, prog.AttachTo):
			return fmt.Errorf("tracepoint %s: %w", prog.AttachTo, ebpf.ErrNotSupported)
		default:
			delete(spec.Programs, name)
			continue
		}
		if !o.need(prog.AttachTo, version, has) {
			delete(spec.Programs, name)
		}
	}
	slices.Sort(p.Has)
	return nil
}

// stampPackets makes the kernel stamp received packets while the returned socket is open
// (netstamp_needed_key in net/core/dev.c).
func stampPackets() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

type serviceKey struct {
	Bits     uint32
	NetNS    uint32
	Protocol uint16
	Port     uint16
	Addr     [16]byte
}

// keyBits is the number of bits of a serviceKey between Bits and Addr.
const keyBits = 64

func (p *Programs) add(number uint32, s Service) error {
	addrs := s.Addrs
	if len(addrs) == 0 {
		addrs = []netip.Prefix{netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	for _, port := range s.Ports {
		for _, a := range addrs {
			bits := a.Bits()
			if a.Addr().Is4() {
				bits += 96
			}
			key := serviceKey{keyBits + uint32(bits), s.NetNS, uint16(s.Protocol), port, a.Masked().Addr().As16()}
			if err := p.coll.Maps["wait_services"].Put(key, number); err != nil {
				return fmt.Errorf("service %d: %w", number, err)
			}
		}
		if s.Protocol == unix.IPPROTO_UDP {
			p.ports[1][port] = 1
		} else {
			p.ports[0][port] = 1
		}
	}
	return p.coll.Variables["ports"].Set(&p.ports)
}

// SetClock gives the programs the difference of the host's clocks. Call it from time to time.
func (p *Programs) SetClock() error {
	var mono, wall unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono),
		unix.ClockGettime(unix.CLOCK_REALTIME, &wall)); err != nil {
		return err
	}
	return p.coll.Variables["real_offset"].Set(wall.Nano() - mono.Nano())
}

// A CardClock relates a card's clock and CLOCK_MONOTONIC, as a Relation of internal/kernel/phc.
type CardClock struct{ PHC, Mono, Slope, Error, Jumps int64 }

// SetCardClock gives the programs the relation by which they convert the timestamps of packets that the
// device with this index received, or none. Without one, which is at most 0.5 s old, timestamps are not used.
func (p *Programs) SetCardClock(device int, c *CardClock) error {
	clocks := p.coll.Maps["wait_card_clocks"]
	if c == nil {
		if err := clocks.Delete(uint32(device)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("the card's clock: %w", err)
		}
		return nil
	}
	if err := errors.Join(clocks.Put(uint32(device), c), p.coll.Variables["card_clocks"].Set(uint32(1))); err != nil {
		return fmt.Errorf("the card's clock: %w", err)
	}
	return nil
}

// SetSlow sets, by service and stage, the wait in ns above which a request gives a Sample; 0: none.
func (p *Programs) SetSlow(limits [][Stages]uint64) error {
	var slow [MaxServices][Stages]uint64
	copy(slow[:], limits)
	least := ^uint64(0)
	for _, s := range slow {
		if s[0] != 0 {
			least = min(least, s[0])
		}
	}
	return errors.Join(p.coll.Variables["slow"].Set(&slow), p.coll.Variables["slow_arrival"].Set(least))
}

// Counts are the counters of a service.
type Counts struct{ Seen, Requests, Stamped, Pipelined, Unpaired, Retransmits, Drops, Lost uint64 }

// A Reading is what the programs have counted of a service since Open.
type Reading struct {
	Counts
	Times [Stages][]uint64 // by bucket
}

// Read returns the reading of each of n services.
func (p *Programs) Read(n int) ([]Reading, error) {
	out := make([]Reading, n)
	buckets := make([]uint64, Buckets)
	counts, err := p.Counts(n)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Counts = counts[i]
		for s := range Stages {
			sum := make([]uint64, Buckets)
			for shard := range p.shards {
				if err := p.coll.Maps["wait_times"].Lookup(uint32(i*Stages+s)*p.shards+shard, buckets); err != nil {
					return nil, fmt.Errorf("times: %w", err)
				}
				for b, v := range buckets {
					sum[b] += v
				}
			}
			out[i].Times[s] = sum
		}
	}
	return out, nil
}

// Counts returns the counters of each of n services.
func (p *Programs) Counts(n int) ([]Counts, error) {
	out := make([]Counts, n)
	for i := range out {
		var each []Counts
		if err := p.coll.Maps["wait_counts"].Lookup(uint32(i), &each); err != nil {
			return nil, fmt.Errorf("counts: %w", err)
		}
		for _, c := range each {
			out[i].add(c)
		}
	}
	return out, nil
}

// Unfinished returns how many requests have no end and no other count.
func (c *Counts) Unfinished() uint64 { return c.Seen - min(c.Seen, c.Requests+c.Unpaired+c.Lost) }

func (c *Counts) add(d Counts) {
	c.Seen += d.Seen
	c.Requests += d.Requests
	c.Stamped += d.Stamped
	c.Pipelined += d.Pipelined
	c.Unpaired += d.Unpaired
	c.Retransmits += d.Retransmits
	c.Drops += d.Drops
	c.Lost += d.Lost
}

// Close detaches the programs and frees them. A nil Programs is allowed.
func (p *Programs) Close() error {
	if p == nil {
		return nil
	}
	errs := []error{p.Detach()}
	if p.samples != nil {
		errs = append(errs, p.samples.Close())
		p.samples = nil
	}
	if p.coll != nil {
		p.coll.Close()
		p.coll = nil
	}
	if p.stamps >= 0 {
		errs = append(errs, unix.Close(p.stamps))
		p.stamps = -1
	}
	return errors.Join(errs...)
}

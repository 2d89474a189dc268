// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/phc"
	"github.com/niclane/niclane/internal/traffic/wait"
)

// A Target is a service to measure: all conditions that are set have to hold for a socket.
type Target struct {
	Name string `json:"name"`           // unique among the targets
	Lane string `json:"lane,omitempty"` // the lane that the service is in
	// Protocol is "tcp" or "udp". Ports are the service's local ports, at least one.
	Protocol string         `json:"protocol"`
	Ports    []uint16       `json:"ports"`
	Addrs    []netip.Prefix `json:"addrs,omitempty"` // local addresses; none: all
	// NetNS is the inode number of the service's network namespace; 0: the namespace of Open.
	NetNS uint32 `json:"netns,omitempty"`
}

// Options say what to measure.
type Options struct {
	Targets []Target // 1 to 64
	// Device is the device by which requests come and answers go, in the namespace of Open. "" means
	// any; an answer to a pod's request then ends at the pod's own device.
	Device string
	// MaxCost is the greatest share of the services' processor time that the programs may take. The
	// Collector follows fewer requests rather than exceed it. 0 means DefaultMaxCost.
	MaxCost float64
	// FixedRate keeps SampleRate, the share of the time in which requests are followed, whatever the
	// cost. SampleRate is 0 to 1; 0 means 1. Without FixedRate, the Collector chooses the share.
	FixedRate  bool
	SampleRate float64
}

// DefaultMaxCost is the greatest cost where Options do not say: 5 % of the services' processor time.
const DefaultMaxCost = 0.05

// A Collector measures until it is closed.
type Collector struct {
	opts    Options
	names   map[int]string // devices by index, as they were at Open
	began   time.Time
	missing map[Stage]string
	notes   []string // on what is not seen here
	clocks  *cardClocks
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex // guards the rest
	p       *wait.Programs
	meter   meter
	fronts  [][Stages]front // by target
	samples uint64
	failed  error // why a measurement ended
}

// Open attaches the programs. They are detached by Close, at the end of ctx, and with the process,
// however it ends. Open works in the calling thread's network namespace. The error is
// ebpf.ErrNotSupported without BTF, EPERM without CAP_BPF or CAP_PERFMON, the kernel's before Linux 5.10, and
// the verifier's under lockdown=confidentiality; nothing is attached then.
func Open(ctx context.Context, o Options) (*Collector, error) {
	c := &Collector{opts: o, began: time.Now(), names: map[int]string{}, fronts: make([][Stages]front, len(o.Targets))}
	c.opts.MaxCost = orDefault(o.MaxCost, DefaultMaxCost)
	c.opts.SampleRate = orDefault(o.SampleRate, 1)
	c.meter = newMeter(c.opts)
	w := wait.Options{}
	devices, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	cards := map[int]string{}
	for _, d := range devices {
		c.names[d.Index] = d.Name
		if (o.Device == "" || d.Name == o.Device) && isCard(d.Name) {
			cards[d.Index] = d.Name
		}
		if d.Name == o.Device {
			w.Device = d.Index
		}
	}
	if o.Device != "" && w.Device == 0 {
		return nil, fmt.Errorf("%s: %w", o.Device, unix.ENODEV)
	}
	if w.Services, err = kernelServices(o.Targets); err != nil {
		return nil, err
	}
	groups, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	w.CgroupRoot = cgroup.Parse(string(groups)).V2
	w.Completions = o.Device == "" || isCard(o.Device)
	c.clocks = openCardClocks(cards, phc.Look)
	if c.p, err = wait.Open(w); err != nil {
		c.clocks.close()
		return nil, explain(err)
	}
	err = errors.Join(c.clocks.give(c.p), c.p.Attach())
	if err == nil && c.meter.pace.threads > 0 {
		err = c.p.Threads(true)
	}
	if err != nil {
		c.clocks.close()
		return nil, explain(errors.Join(err, c.p.Close()))
	}
	c.missing, c.notes = missing(c.p.Has, w.CgroupRoot, w.Completions, o)
	ctx, c.stop = context.WithCancel(ctx)
	c.done.Go(func() { c.collect(ctx) })
	c.done.Go(func() { c.watch(ctx) })
	p := c.p
	c.done.Go(func() {
		defer c.clocks.close()
		if err := c.clocks.follow(ctx, p); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.fail(err)
		}
	})
	context.AfterFunc(ctx, func() { c.detach() })
	return c, nil
}

func orDefault(v, d float64) float64 {
	if v == 0 {
		return d
	}
	return v
}

func kernelServices(targets []Target) ([]wait.Service, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return nil, err
	}
	var out []wait.Service
	var names []string
	for _, t := range targets {
		s := wait.Service{NetNS: t.NetNS, Ports: t.Ports, Addrs: t.Addrs}
		if s.NetNS == 0 {
			s.NetNS = uint32(ns.Ino)
		}
		switch t.Protocol {
		case "tcp":
			s.Protocol = unix.IPPROTO_TCP
		case "udp":
			s.Protocol = unix.IPPROTO_UDP
		default:
			return nil, fmt.Errorf("target %s: protocol %q: want tcp or udp", t.Name, t.Protocol)
		}
		if len(t.Ports) == 0 {
			return nil, fmt.Errorf("target %s: no ports", t.Name)
		}
		if slices.Contains(names, t.Name) {
			return nil, fmt.Errorf("two targets have the name %s", t.Name)
		}
		names = append(names, t.Name)
		out = append(out, s)
	}
	return out, nil
}

// explain adds what would be right to an error of wait.Open.
func explain(err error) error {
	// The verifier then refuses bpf_probe_read_kernel with EINVAL (LOCKDOWN_BPF_READ_KERNEL in Linux'
	// include/linux/security.h). Without securityfs, the file is not there.
	if b, _ := os.ReadFile("/sys/kernel/security/lockdown"); strings.Contains(string(b), "[confidentiality]") {
		return fmt.Errorf("%w: the kernel is locked down (/sys/kernel/security/lockdown has confidentiality); waits "+
			"needs lockdown=integrity or none", err)
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: waits needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and before Linux 5.11 "+
			"CAP_SYS_RESOURCE", err)
	}
	return fmt.Errorf("%w: waits needs Linux 5.10 with BTF (/sys/kernel/btf/vmlinux)", err)
}

// collect adds samples of slow requests to fronts.
func (c *Collector) collect(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := c.p.Sample(time.Now().Add(200 * time.Millisecond))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		c.mu.Lock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			c.fail(fmt.Errorf("samples: %w", err))
			c.mu.Unlock()
			return
		case s.Service < len(c.fronts) && s.Stage < int(Stages):
			c.samples++
			c.fronts[s.Service][s.Stage].add(s, c.namer(s))
		}
		c.mu.Unlock()
	}
}

// fail keeps the first error of the background work; Snapshot returns it. c.mu is held.
func (c *Collector) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

// Snapshot returns what the programs have seen since Open. It is safe for concurrent use.
func (c *Collector) Snapshot() (Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.p == nil {
		return Snapshot{}, errors.New("waits: closed")
	}
	if c.failed != nil {
		return Snapshot{}, c.failed
	}
	if err := c.meter.processes(c.p); err != nil {
		return Snapshot{}, err
	}
	readings, err := c.p.Read(len(c.opts.Targets))
	if err != nil {
		return Snapshot{}, err
	}
	lost, err := c.p.LostSamples()
	if err != nil {
		return Snapshot{}, err
	}
	misses, err := c.p.Misses()
	if err != nil {
		return Snapshot{}, err
	}
	lost += misses
	now := time.Now()
	s := Snapshot{At: now, Duration: now.Sub(c.began), Followed: c.meter.following(now),
		SampleRate: c.meter.pace.follow, Missing: c.missing, Notes: slices.Concat(c.notes, c.clocks.report()),
		Lost: lost, Cost: c.meter.cost()}
	var cpu time.Duration
	for i, r := range readings {
		x := Service{Target: c.opts.Targets[i], Requests: r.Requests, Seen: r.Seen, Stamped: r.Stamped,
			Retransmits: r.Retransmits, Drops: r.Drops, Pipelined: r.Pipelined, Unpaired: r.Unpaired,
			Unfinished: r.Unfinished()}
		x.CPU, x.Processes = c.meter.service(i)
		for st := range Stages {
			x.Waits[st] = NewHistogram(r.Times[st])
			x.fronts[st] = c.fronts[i][st].clone()
		}
		x.Culprits = x.culprits()
		s.Lost += r.Lost
		cpu += x.CPU
		s.Services = append(s.Services, x)
	}
	s.Cost.Share = share(s.Cost.CPU, cpu)
	return s, nil
}

// Close detaches the programs. A nil Collector is allowed.
func (c *Collector) Close() error {
	if c == nil {
		return nil
	}
	c.stop()
	c.done.Wait()
	return c.detach()
}

func (c *Collector) detach() error {
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.p.Close()
	c.p = nil
	return err
}

// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// A Machine makes and removes lanes on this host.
type Machine interface {
	// State reads the state of every object that a plan can write.
	State(ctx context.Context) (*device.State, error)
	// Plan plans a lanes file. If the planner refuses it, p is nil and refused has the reasons.
	Plan(ctx context.Context, lanes string) (p *plan.Plan, refused []string, err error)
	// Apply applies a lanes file. Unless Rollback comes first, a separate process undoes it after
	// within.
	Apply(ctx context.Context, lanes string, within time.Duration) error
	// Watch watches the traffic of the applied lanes.
	Watch(ctx context.Context, during time.Duration) (verify.Watched, []verify.Finding, error)
	// Rollback undoes Apply.
	Rollback(ctx context.Context) error
	// LinkDowns returns how often the device has lost its carrier (nil if not counted), and whether it
	// has a carrier now.
	LinkDowns() (downs *int, carrier bool)
}

// A Peer is a Host that can also send a request to a server.
type Peer interface {
	Host
	// Asks sends a request to address. It returns nil if the server answers.
	Asks(ctx context.Context, address netip.AddrPort) error
}

// Config is the input of Run.
type Config struct {
	Target
	Machine Machine
	Own     Host
	Peer    Peer
	Niclane string // version of niclane
	// During is how long the traffic is watched in each case.
	During time.Duration
	// Within is the time after which an apply is undone if there was no rollback.
	Within time.Duration
	// Latency configures the latency measurement.
	Latency LatencyConfig
	// Only are the names of the cases to try; empty: all.
	Only []string
	// Progress gets a line for each case; nil: no output.
	Progress io.Writer
}

// A runner is the state of one selftest.
type runner struct {
	target  Target
	c       Config
	m       Machine
	own     Host
	peer    Peer
	r       *Record
	servers []Task
	began   time.Time
}

// errLeft ends a selftest because a case's changes were not undone completely.
var errLeft = errors.New("the changes of a case could not be undone entirely: niclane rollback tries again")

// Run tries all cases. If it ends early, the record has the cases that were tried before. All
// changes are undone in any case.
func Run(ctx context.Context, c Config) (*Record, error) {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	r := &runner{target: c.Target, c: c, m: c.Machine, own: c.Own, peer: c.Peer, began: time.Now()}
	r.r = &Record{Schema: Schema, Niclane: c.Niclane, Started: r.began.UTC().Round(time.Second), System: system()}
	err := r.all(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			if errors.Is(err, context.Canceled) {
				err = errors.New("interrupted")
			}
		}
		r.r.Partial = err.Error()
	}
	for _, t := range r.servers {
		err = errors.Join(err, t.Stop(context.WithoutCancel(ctx)))
	}
	r.r.Took = int64(time.Since(r.began))
	return r.r, err
}

func system() System {
	h := machine.Describe()
	return System{Kernel: h.Kernel, Distribution: h.Distribution, CPUModel: h.CPUModel, CPUs: h.CPUs,
		Virtualisation: h.Virtualisation}
}

// Plan returns the cases that Run would try, each with its plan. It changes nothing.
func Plan(ctx context.Context, c Config) ([]Case, error) {
	r := &runner{target: c.Target, c: c, m: c.Machine, r: &Record{}}
	cases, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	var out []Case
	for _, p := range cases {
		if _, err := r.plan(ctx, &p.Case); err != nil {
			return nil, err
		}
		out = append(out, p.Case)
	}
	return out, nil
}

// prepare describes the device and makes the cases.
func (r *runner) prepare(ctx context.Context) ([]plannedCase, error) {
	st, err := r.m.State(ctx)
	if err != nil {
		return nil, err
	}
	d := st.Device(r.target.Device)
	if d == nil {
		return nil, fmt.Errorf("no network device %q here", r.target.Device)
	}
	r.r.Device = describe(d)
	r.target.Queues = 1
	if d.RxQueues >= 4 && d.TxQueues >= 4 {
		r.target.Queues = 2
	}
	k := kinds(r.target.Ends, r.target.Port)[0]
	p, refused, err := r.m.Plan(ctx, r.target.lanes(k, nil, ""))
	if err != nil {
		return nil, err
	}
	if p == nil {
		r.r.Warnings = append(r.r.Warnings, refused...)
	} else {
		r.r.Choices = p.Choices
	}
	cases := r.target.cases(r.r.Choices)
	if len(r.c.Only) == 0 {
		return cases, nil
	}
	return only(cases, r.c.Only)
}

// only returns the cases with the given names.
func only(cases []plannedCase, names []string) (out []plannedCase, err error) {
	for _, n := range names {
		found := false
		for _, p := range cases {
			if p.Name == n {
				out, found = append(out, p), true
			}
		}
		if !found {
			text := ""
			for _, p := range cases {
				text += "\n  " + p.Name
			}
			return nil, fmt.Errorf("no case %q here; there are:%s", n, text)
		}
	}
	return out, nil
}

func describe(d *device.Device) Device {
	return Device{
		Driver: d.Driver, Type: d.Type, Version: d.Version, Firmware: d.Firmware, Bus: d.Bus, Emulated: d.Emulated,
		Speed: d.Speed,
		MTU:   d.MTU, RxQueues: d.RxQueues, TxQueues: d.TxQueues, Channels: d.Channels, MaxChannels: d.MaxChannels,
		RuleCapacity: d.RuleCapacity, MaxContexts: d.MaxContexts, Capabilities: d.Capabilities,
	}
}

// plan plans a case and records the plan in it. It returns nil if the planner refused.
func (r *runner) plan(ctx context.Context, c *Case) (*plan.Plan, error) {
	p, refused, err := r.m.Plan(ctx, c.Lanes)
	if err != nil {
		return nil, err
	}
	if p == nil {
		c.Outcome, c.Reasons = Refused, refused
		return nil, nil
	}
	c.Steps, c.Made = len(p.Steps), map[device.Part]string{}
	shaped := false
	for _, s := range p.Steps {
		shaped = shaped || s.Part == device.PartBandwidth
		if s.Disruptive {
			c.Disruptive = append(c.Disruptive, s.Reason)
		}
	}
	for _, x := range p.Choices {
		// A bandwidth mechanism counts only if the lane asks for bandwidth.
		if x.Mechanism != "" && (x.Part != device.PartBandwidth || shaped) {
			c.Made[x.Part] = x.Mechanism
		}
	}
	for _, l := range p.Lanes {
		if l.Name == LaneName {
			c.Queues = l.Queues
		}
	}
	return p, nil
}

func (r *runner) all(ctx context.Context) error {
	first, err := r.m.State(ctx)
	if err != nil {
		return err
	}
	cases, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	if err := r.serve(ctx); err != nil {
		return err
	}
	for i, p := range cases {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			p.Outcome = Skipped
			r.r.Cases = append(r.r.Cases, p.Case)
			continue
		}
		err = r.try(ctx, &p)
		r.r.Cases = append(r.r.Cases, p.Case)
		fmt.Fprintf(r.c.Progress, "%d of %d: %s: %s%s\n", i+1, len(cases), p.Name, p.Outcome, firstReason(p.Case))
	}
	if err == nil && r.c.Latency.Rounds > 0 {
		err = r.latency(ctx)
	}
	last, unread := r.m.State(context.WithoutCancel(ctx))
	if unread != nil {
		return errors.Join(err, unread)
	}
	if r.r.Left = differences(first, last); len(r.r.Left) > 0 {
		err = errors.Join(err, errLeft)
	}
	return err
}

func firstReason(c Case) string {
	if len(c.Reasons) == 0 {
		return ""
	}
	return ": " + c.Reasons[0]
}

// serve starts servers on the lane's port and on the next port. It checks that they answer the
// peer.
func (r *runner) serve(ctx context.Context) error {
	for _, e := range r.target.Ends {
		for port := r.target.Port; port <= r.target.Port+1; port++ {
			at := netip.AddrPortFrom(e.Own, uint16(port))
			// Check that the port is free first. Otherwise another program on it could answer the peer
			// before our server reports that it cannot listen.
			if err := free(at); err != nil {
				return fmt.Errorf("%w: want ports %d and %d free, or others: --port", err, r.target.Port,
					r.target.Port+1)
			}
			t, err := r.own.Start(ctx, fmt.Sprintf("server at port %d", port), partServer,
				memserver.Config{Address: at.String()})
			if err != nil {
				return err
			}
			r.servers = append(r.servers, t)
			err = r.answers(ctx, at)
			select {
			case <-t.Done():
				return t.Result(ctx, new(memserver.Result))
			default:
			}
			if err != nil {
				return fmt.Errorf("the peer does not reach %s: %w (a firewall? --port chooses the ports)", at, err)
			}
		}
	}
	return nil
}

// free returns an error if another program listens at an address.
func free(at netip.AddrPort) error {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	return l.Close()
}

// answers waits until a server answers the peer.
func (r *runner) answers(ctx context.Context, at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, patience/3)
	defer cancel()
	for {
		err := r.peer.Asks(ctx, at)
		if err == nil {
			return nil
		}
		for _, t := range r.servers {
			select {
			case <-t.Done():
				return err
			default:
			}
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// try tries one case. If it returns an error, the selftest ends.
func (r *runner) try(ctx context.Context, p *plannedCase) error {
	c := &p.Case
	made, err := r.plan(ctx, c)
	if err != nil || made == nil {
		return err
	}
	before, err := r.m.State(ctx)
	if err != nil {
		return err
	}
	t, err := r.start(ctx, p.kind)
	if err != nil {
		if ctx.Err() != nil {
			c.Outcome = Skipped
			return ctx.Err()
		}
		c.Outcome, c.Reasons = Unproven, []string{"no traffic: " + err.Error()}
		return nil
	}
	downs, _ := r.m.LinkDowns()
	failed := r.lanes(ctx, c, p.kind, downs)
	// The rollback is done, so the connections' results cover the whole life of the lane.
	if now, _ := r.m.LinkDowns(); downs != nil && now != nil {
		n := *now - *downs
		c.LinkDowns = &n
	}
	var lost error
	c.Connections, lost = t.account(ctx)
	return r.finish(ctx, p, before, failed, lost)
}

// finish compares the state with that before the case, and judges the case. If it returns an error,
// the selftest ends.
func (r *runner) finish(ctx context.Context, p *plannedCase, before *device.State, failed, lost error) error {
	c := &p.Case
	if lost != nil {
		c.Reasons = append(c.Reasons, "connections: "+lost.Error())
	}
	after, err := r.m.State(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	c.Differences = differences(before, after)
	if ctx.Err() != nil && errors.Is(failed, ctx.Err()) {
		failed, c.Findings = nil, nil
		c.Reasons = append(c.Reasons, "interrupted")
	}
	c.judge(failed, p.kind)
	if len(c.Differences) > 0 {
		return errLeft
	}
	return ctx.Err()
}

// lanes applies the case's lanes file and watches the traffic. In any case, it rolls back at the
// end.
func (r *runner) lanes(ctx context.Context, c *Case, k kind, downs *int) (err error) {
	began := time.Now()
	err = r.m.Apply(ctx, c.Lanes, r.c.Within)
	c.ApplyTook = int64(time.Since(began))
	if err != nil {
		return fmt.Errorf("apply: %w", err) // no rollback: apply has undone its own changes
	}
	defer func() {
		began := time.Now()
		if failed := r.m.Rollback(context.WithoutCancel(ctx)); failed != nil {
			err = errors.Join(err, fmt.Errorf("rollback: %w", failed))
		}
		c.RollbackTook = int64(time.Since(began))
	}()
	// If the link went down during the watch, watch again, because traffic stops while the link is
	// down.
	for range maxWatches {
		during, seen, err := r.settle(ctx, k, downs, began)
		if err != nil {
			return err
		}
		w, fs, err := r.m.Watch(ctx, during)
		if err != nil {
			return fmt.Errorf("watching the traffic: %w", err)
		}
		c.Findings, c.Received, c.Sent = fs, cells(w.Received), cells(w.Sent)
		if now, _ := r.m.LinkDowns(); seen == nil || now == nil || *now == *seen {
			break
		}
	}
	return ctx.Err()
}

// maxWatches is how often the traffic of a case is watched if the link is unstable.
const maxWatches = 3

// settle waits until traffic flows again after the link was down, and returns how long to watch.
// TCP waits up to the length of the outage before it retransmits (RFC 6298). seen is how often the
// link has gone down so far.
func (r *runner) settle(ctx context.Context, k kind, downs *int,
	began time.Time) (during time.Duration, seen *int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.c.Within/2, errors.New("the link does not come back"))
	defer cancel()
	for {
		if _, carrier := r.m.LinkDowns(); carrier {
			break
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, nil, err
		}
	}
	if err := r.answers(ctx, netip.AddrPortFrom(k.end.Own, uint16(r.target.Port))); err != nil {
		return 0, nil, fmt.Errorf("the lane's port does not answer the peer: %w", err)
	}
	seen, _ = r.m.LinkDowns()
	if downs != nil && seen != nil && *seen > *downs {
		return r.c.During + time.Since(began), seen, nil
	}
	return r.c.During, seen, nil
}

func cells(in []verify.Cell) (out []Cell) {
	for _, c := range in {
		out = append(out, Cell{c.Lane, c.Queue, c.Packets})
	}
	return out
}

// judge sets the outcome of a case, from its findings and errors.
func (c *Case) judge(failed error, k kind) {
	c.Outcome = OK
	bad := func(o Outcome, text string) {
		if c.Outcome != Failed {
			c.Outcome = o
		}
		c.Reasons = append(c.Reasons, text)
	}
	if len(c.Reasons) > 0 {
		c.Outcome = Unproven
	}
	if failed != nil {
		bad(Failed, failed.Error())
	}
	for _, f := range c.Findings {
		if f.Lane != LaneName && f.Severity == verify.Unknown {
			continue
		}
		// Datagrams are not answered, so the host sends nothing that could show a result.
		if k.udp && f.Severity == verify.Unknown && f.Part != device.PartSteering {
			continue
		}
		what := cmp.Or(string(f.Part), f.Key)
		switch f.Severity {
		case verify.Drift:
			bad(Failed, what+": "+f.Meaning)
		case verify.Unknown:
			bad(Unproven, what+": "+f.Meaning)
		}
	}
	if len(c.Differences) > 0 {
		bad(Failed, fmt.Sprintf("%d objects are not as before", len(c.Differences)))
	}
	if failed == nil && len(c.Findings) == 0 {
		bad(Unproven, "niclane verify reported nothing")
	}
}

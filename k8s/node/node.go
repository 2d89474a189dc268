// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/card"
	"github.com/niclane/niclane/k8s/classes"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/plan"
)

// A Card makes lanes: *card.Card.
type Card interface {
	Apply(ctx context.Context, f *policy.File) (*card.Result, error)
	Remove(ctx context.Context) error
}

// Options of a Node.
type Options struct {
	// Name of the node in Kubernetes.
	Name string
	// Path of the state file, in a directory that only root can enter.
	Path string
	// Config is the path under which the lanes file is known.
	Config string
	// Boot is the kernel's boot ID.
	Boot string
	Card Card
	// Device returns the device with the node's address, "" if there is none.
	Device func() (string, error)
	// Changed is told whenever Now or Status may have changed. It must not
	// block.
	Changed func()
	Log     *slog.Logger
}

// A Node is one node's lanes.
type Node struct {
	o        Options
	requests chan *request
	policies chan chan struct{} // closed when the wanted policy was followed
	ended    chan struct{}

	// Of the loop alone:
	text  []byte // of the lanes file that is applied
	dirty bool   // the card is not as st says
	link  uint64

	mu      sync.Mutex // of what follows
	st      *state
	wanted  *wanted
	applied *card.Result
	granted map[string]time.Time // units that kubelet gave, by ID
	drifts  map[string][]string  // why lanes are unhealthy, by lane; "": all
	problem string               // why the wanted policy is not applied
	held    map[string]string
	version uint64
	snap    *classes.Snapshot
	changed chan struct{}
}

// wanted is the policy that somebody asks for.
type wanted struct {
	name       string
	generation int64
	spec       *v1alpha1.LanePolicySpec // nil: no policy selects this node
	err        error                    // it cannot be told which one it is
}

type request struct {
	ctx    context.Context
	mutate func(*state) error
	// anyway: the state changes although the card cannot be made so now.
	anyway bool
	done   chan error
}

// startGrace is how long a unit that kubelet gave belongs to a pod that has not
// been seen yet: the time from admission to its sandbox's network.
const startGrace = 2 * time.Minute

// New reads what is known. Nothing is applied before Run.
func New(o Options) (*Node, error) {
	st, err := load(o.Path, o.Boot)
	if err != nil {
		return nil, err
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	n := &Node{
		o: o, st: st, requests: make(chan *request, 256), policies: make(chan chan struct{}), ended: make(chan struct{}),
		granted: map[string]time.Time{}, drifts: map[string][]string{}, changed: make(chan struct{}), dirty: true,
	}
	n.publish()
	return n, nil
}

// errEnded is the answer of a node that does not run any more.
var errEnded = errors.New("niclane-agent is ending")

// retry bounds how often something that failed is tried again by itself.
const (
	retryFirst = time.Second
	retryLast  = time.Minute
)

// Run applies changes until ctx ends. What is known from before is applied first.
func (n *Node) Run(ctx context.Context) {
	defer close(n.ended)
	n.restore(ctx)
	wait := retryFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-n.requests:
			batch := []*request{r}
			for len(n.requests) > 0 {
				batch = append(batch, <-n.requests)
			}
			n.handle(ctx, batch)
			n.settle(ctx)
			wait = retryFirst
		case done := <-n.policies:
			n.follow(ctx)
			close(done)
			wait = retryFirst
		case <-timer.C:
			if n.dirty {
				n.restore(ctx)
			}
			n.mu.Lock()
			failing := n.problem != ""
			n.mu.Unlock()
			if failing {
				n.follow(ctx)
			}
			wait = min(2*wait, retryLast)
		}
		n.mu.Lock()
		idle := !n.dirty && n.problem == ""
		n.mu.Unlock()
		if timer.Stop(); !idle {
			timer.Reset(wait)
		}
	}
}

// restore makes the card as the state says.
func (n *Node) restore(ctx context.Context) {
	n.mu.Lock()
	st := n.st
	n.mu.Unlock()
	if st.Spec == nil && len(n.text) == 0 && !n.dirty {
		return
	}
	if err := n.make(ctx, st); err != nil {
		n.o.Log.Error("lanes cannot be made as they were", "error", err)
		n.note(func() { n.problem = err.Error() })
		return
	}
	n.publish()
}

// handle makes a batch of changes together; if that fails, one by one, so that
// each has its own answer.
func (n *Node) handle(ctx context.Context, batch []*request) {
	n.mu.Lock()
	next := n.st
	n.mu.Unlock()
	var taken []*request
	for _, r := range batch {
		try := next.clone()
		if err := errors.Join(r.ctx.Err(), r.mutate(try)); err != nil {
			r.done <- err
			continue
		}
		next, taken = try, append(taken, r)
	}
	if len(taken) == 0 {
		return
	}
	err := n.make(ctx, next)
	if err == nil {
		err = next.save(n.o.Path)
		n.dirty = err != nil
	}
	switch {
	case err == nil:
		n.commit(next)
	case len(taken) > 1:
		for _, r := range taken {
			n.handle(ctx, []*request{r})
		}
		return
	case taken[0].anyway:
		n.o.Log.Error("the card does not follow yet", "error", err)
		n.dirty = true
		if serr := next.save(n.o.Path); serr != nil {
			n.o.Log.Error("state", "error", serr)
		}
		n.commit(next)
		err = nil
	}
	for _, r := range taken {
		r.done <- err
	}
}

func (n *Node) commit(next *state) {
	n.mu.Lock()
	n.st = next
	n.mu.Unlock()
	n.publish()
}

// make has the card be as st says.
func (n *Node) make(ctx context.Context, st *state) error {
	if st.Spec == nil || len(st.Spec.Classes) == 0 {
		if n.text == nil && !n.dirty {
			return nil
		}
		if err := n.o.Card.Remove(ctx); err != nil {
			return err
		}
		n.text, n.dirty = nil, false
		n.note(func() { n.applied = nil })
		return nil
	}
	device := ""
	if u := st.Spec.Uplink; u.Dev == "" && u.Bond == "" {
		var err error
		if device, err = n.o.Device(); err != nil {
			return err
		}
	}
	f, err := policy.Make(n.o.Config, st.Spec, st.lanes(device, n.link))
	if err != nil {
		return err
	}
	if bytes.Equal(f.Text, n.text) && !n.dirty {
		return nil
	}
	r, err := n.o.Card.Apply(ctx, f)
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		n.o.Log.Warn(w)
	}
	n.text, n.dirty = f.Text, false
	if r.State != nil && len(r.Plan.Devices) > 0 {
		if d := r.State.Device(r.Plan.Devices[0]); d != nil {
			n.link = d.Speed
		}
	}
	n.note(func() { n.applied = r })
	return nil
}

func (n *Node) note(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	n.o.Changed()
}

// settle tries again what had to wait for pods.
func (n *Node) settle(ctx context.Context) {
	n.mu.Lock()
	waiting := len(n.held) > 0
	n.mu.Unlock()
	if waiting {
		n.follow(ctx)
	}
}

// do has a change made and waits for it.
func (n *Node) do(ctx context.Context, anyway bool, mutate func(*state) error) error {
	r := &request{ctx: ctx, mutate: mutate, anyway: anyway, done: make(chan error, 1)}
	select {
	case n.requests <- r:
	case <-n.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-n.ended:
		return errEnded
	}
}

// SetPolicy says which policy is the node's: nil for none. err is why that cannot
// be told; the lanes then stay as they are. It returns when the policy was
// followed, or Status says why not.
func (n *Node) SetPolicy(ctx context.Context, p *v1alpha1.LanePolicy, err error) {
	w := &wanted{err: err}
	if p != nil {
		spec := p.Spec
		w.name, w.generation, w.spec = p.Name, p.Generation, &spec
	}
	n.note(func() { n.wanted = w })
	done := make(chan struct{})
	select {
	case n.policies <- done:
	case <-n.ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-n.ended:
	}
}

// follow applies what of the wanted policy can be applied now. It runs in the
// loop.
func (n *Node) follow(ctx context.Context) {
	n.mu.Lock()
	w, st := n.wanted, n.st
	n.mu.Unlock()
	if w == nil {
		return
	}
	if w.err != nil {
		n.note(func() { n.problem = w.err.Error() })
		return
	}
	spec := w.spec
	if spec == nil {
		spec = &v1alpha1.LanePolicySpec{}
	}
	now, held := policy.Keep(st.Spec, spec, n.use(st))
	if w.spec == nil && len(now.Classes) == 0 {
		now = nil
	}
	n.mu.Lock()
	same := n.problem == "" && !n.dirty && st.Policy == w.name && st.Generation == w.generation && reflect.DeepEqual(st.Spec, now)
	if same {
		n.held = held
	}
	n.mu.Unlock()
	if same {
		n.o.Changed()
		return
	}
	next := st.clone()
	next.Spec, next.Policy, next.Generation = now, w.name, w.generation
	err := n.make(ctx, next)
	if err == nil {
		err = next.save(n.o.Path)
		n.dirty = err != nil
	}
	if err != nil {
		n.o.Log.Error("policy is not applied", "policy", w.name, "error", err)
		n.note(func() { n.problem, n.held = err.Error(), held })
		return
	}
	n.mu.Lock()
	n.problem, n.held = "", held
	n.mu.Unlock()
	n.commit(next)
}

// use says which units of the state's classes are in use.
func (n *Node) use(st *state) policy.Use {
	holders := st.holders()
	n.mu.Lock()
	for id, when := range n.granted {
		if _, known := holders[id]; known || time.Since(when) > startGrace {
			delete(n.granted, id)
			continue
		}
		holders[id] = classes.Holder{}
	}
	n.mu.Unlock()
	use := policy.Use{}
	if st.Spec == nil {
		return use
	}
	for i := range st.Spec.Classes {
		c := &st.Spec.Classes[i]
		for _, id := range slices.Sorted(maps.Keys(holders)) {
			if policy.UnitNumber(c.Name, id) >= 0 {
				use[c.Name] = append(use[c.Name], policy.UsedUnit{ID: id, Pod: holders[id].String()})
			}
		}
	}
	return use
}

// Granted records that kubelet has given units to a container that is about to
// start. It refuses units that cannot be given.
func (n *Node) Granted(class string, ids []string) error {
	c := n.Now().Find(class)
	if c == nil {
		return fmt.Errorf("%s: %w", class, classes.ErrNoClass)
	}
	for _, id := range ids {
		u := c.Find(id)
		if u == nil {
			return fmt.Errorf("%s: %w", id, classes.ErrNoUnit)
		}
		if u.Unhealthy != "" {
			return fmt.Errorf("%s: %w: %s", id, classes.ErrUnhealthy, u.Unhealthy)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		n.granted[id] = time.Now()
	}
	return nil
}

// SetHealth says why lanes are not healthy, by lane; "" is all of them.
func (n *Node) SetHealth(drifts map[string][]string) {
	n.mu.Lock()
	n.drifts = drifts
	n.mu.Unlock()
	n.publish()
}

// Attach puts a pod into its lanes. It returns when its packets are steered, or an
// error, and then nothing has changed. A sandbox that is attached already is
// attached anew.
func (n *Node) Attach(ctx context.Context, a Attachment) error {
	return n.do(ctx, false, func(s *state) error {
		for _, g := range a.Grants {
			c := s.class(g.Class)
			if c == nil {
				return fmt.Errorf("class %s: %w", g.Class, classes.ErrNoClass)
			}
			for _, id := range g.Units {
				if no := policy.UnitNumber(c.Name, id); no < 0 || no >= policy.Size(c) {
					return fmt.Errorf("class %s: unit %s: %w", g.Class, id, classes.ErrNoUnit)
				}
			}
		}
		for _, other := range s.sorted() {
			if other.UID != a.UID && (overlapping(&other, &a) || sharesUnit(&other, &a)) || other.UID == a.UID && other.Sandbox != a.Sandbox {
				// kubelet and the address plugin give a unit and an address
				// to one pod at a time: the other's end was missed.
				n.o.Log.Warn("a pod's end was missed", "pod", other.Name(), "now", a.Name())
				delete(s.Attachments, other.key())
			}
		}
		if err := s.frontendTaken(&a); err != nil {
			return err
		}
		s.Attachments[a.key()] = a
		return nil
	})
}

func sharesUnit(a, b *Attachment) bool {
	has := map[string]bool{}
	for _, g := range a.Grants {
		for _, id := range g.Units {
			has[id] = true
		}
	}
	for _, g := range b.Grants {
		if slices.ContainsFunc(g.Units, func(id string) bool { return has[id] }) {
			return true
		}
	}
	return false
}

// Detach takes a sandbox's interface out of its lanes, all of them if ifname is
// "". One that is unknown is nil; so is one whose steering cannot be removed now:
// it is removed later.
func (n *Node) Detach(ctx context.Context, sandbox, ifname string) error {
	n.mu.Lock()
	known := false
	for _, a := range n.st.Attachments {
		known = known || a.Sandbox == sandbox
	}
	n.mu.Unlock()
	if !known {
		return nil
	}
	return n.do(ctx, true, func(s *state) error {
		maps.DeleteFunc(s.Attachments, func(_ string, a Attachment) bool {
			return a.Sandbox == sandbox && (ifname == "" || a.IfName == ifname)
		})
		return nil
	})
}

// Keep takes out of their lanes all attachments for which still is false.
func (n *Node) Keep(ctx context.Context, still func(Attachment) bool) error {
	if !slices.ContainsFunc(n.Attachments(), func(a Attachment) bool { return !still(a) }) {
		return nil
	}
	return n.do(ctx, true, func(s *state) error {
		maps.DeleteFunc(s.Attachments, func(_ string, a Attachment) bool { return !still(a) })
		return nil
	})
}

// Attachments returns the pods that are in lanes, by sandbox.
func (n *Node) Attachments() []Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.st.sorted()
}

// Lanes are the lanes as they were last planned.
func (n *Node) Lanes() []plan.FittedLane {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.applied == nil {
		return nil
	}
	return n.applied.Plan.Lanes
}

// A Status is how the node follows its policy.
type Status struct {
	// Policy and Generation of what is wanted, "" if no policy selects the node.
	Policy     string
	Generation int64
	// Applied says that the card is as the policy says; Problem why not.
	Applied bool
	Problem string
	// Held says by class what waits for pods; "" is the device.
	Held map[string]string
	// Unhealthy are the reasons why lanes do not hold.
	Unhealthy []string
	Devices   []string
}

// Status returns it.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := Status{Problem: n.problem, Held: maps.Clone(n.held)}
	if n.wanted != nil {
		s.Policy, s.Generation = n.wanted.name, n.wanted.generation
	}
	s.Applied = n.problem == "" && len(n.held) == 0
	for _, lane := range slices.Sorted(maps.Keys(n.drifts)) {
		for _, why := range n.drifts[lane] {
			if lane != "" {
				why = "lane " + lane + ": " + why
			}
			s.Unhealthy = append(s.Unhealthy, why)
		}
	}
	if n.applied != nil {
		s.Devices = n.applied.Plan.Devices
	}
	return s
}

// String gives the problem and what is held, for people.
func (s *Status) String() string {
	if s.Problem != "" {
		return s.Problem
	}
	var out []string
	for _, class := range slices.Sorted(maps.Keys(s.Held)) {
		name := "class " + class
		if class == "" {
			name = "uplink"
		}
		out = append(out, name+": "+s.Held[class])
	}
	return strings.Join(out, "; ")
}

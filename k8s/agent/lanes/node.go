// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/inventory"
	"github.com/niclane/niclane/k8s/policy"
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
	// Path of the state file, and RunDir, where that of this boot's pods is: in
	// directories that only root can enter.
	Path, RunDir string
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
	disk  *disk
	maker policy.Maker
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
	stale   bool // snap is older than what is above
	changed chan struct{}
}

type request struct {
	ctx    context.Context
	mutate func(*state) error
	// anyway: the state changes although the card cannot be made so now.
	anyway bool
	done   chan error
}

// New reads what is known. Nothing is applied before Run.
func New(o Options) (*Node, error) {
	disk := newDisk(o.Path, o.RunDir, o.Boot)
	st, err := disk.load()
	if err != nil {
		return nil, err
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	n := &Node{
		o: o, disk: disk, st: st, requests: make(chan *request, 256), policies: make(chan chan struct{}), ended: make(chan struct{}),
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
	saving := n.disk.begin(next) // it takes as long as a part of making
	err := n.make(ctx, next)
	if serr := saving.end(err == nil); err == nil {
		err = serr
		n.dirty = err != nil
	}
	switch {
	case err == nil:
	case len(taken) > 1:
		for _, r := range taken {
			n.handle(ctx, []*request{r})
		}
		return
	case taken[0].anyway:
		n.o.Log.Error("the card does not follow yet", "error", err)
		n.dirty = true
		if serr := n.disk.save(next); serr != nil {
			n.o.Log.Error("state", "error", serr)
		}
		err = nil
	}
	if err == nil {
		n.set(next)
	}
	for _, r := range taken {
		r.done <- err
	}
	if err == nil {
		n.publish()
	}
}

// set has next be the state, also of what Now returns.
func (n *Node) set(next *state) {
	n.mu.Lock()
	n.st, n.stale = next, true
	n.mu.Unlock()
}

func (n *Node) commit(next *state) {
	n.set(next)
	n.publish()
}

// make has the card be as st says. The caller publishes it.
func (n *Node) make(ctx context.Context, st *state) error {
	if st.Spec == nil || len(st.Spec.Classes) == 0 {
		if n.text == nil && !n.dirty {
			return nil
		}
		if err := n.o.Card.Remove(ctx); err != nil {
			return err
		}
		n.text, n.dirty = nil, false
		n.made(nil)
		return nil
	}
	device := ""
	if u := st.Spec.Uplink; u.Dev == "" && u.Bond == "" {
		var err error
		if device, err = n.o.Device(); err != nil {
			return err
		}
	}
	f, err := n.maker.Make(n.o.Config, st.Spec, st.lanes(device, n.link))
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
	n.made(r)
	return nil
}

// made takes note of what was applied. Whoever had it made publishes it, when those
// who wait have their answer.
func (n *Node) made(r *card.Result) {
	n.mu.Lock()
	n.applied = r
	n.mu.Unlock()
}

func (n *Node) note(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	n.o.Changed()
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

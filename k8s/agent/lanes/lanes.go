// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/engine"
)

// An Applier makes the lanes of a lanes file, or removes them. *applier.Applier implements it.
type Applier interface {
	Apply(ctx context.Context, f *policy.File) (*engine.Result, error)
	Remove(ctx context.Context) error
}

// Options of a Manager.
type Options struct {
	// Name is the node's name in Kubernetes.
	Name string
	// Path is the state file's path. RunDir is the directory of the file with this boot's pods. Only
	// root can enter the two directories.
	Path, RunDir string
	// Config is the path of the lanes file, by which the journal names it.
	Config string
	// Boot is the kernel's boot ID.
	Boot    string
	Applier Applier
	// Device returns the name of the device with the node's address, "" if there is none.
	Device func() (string, error)
	// Changed is called whenever Now or Status may have changed. It must not block.
	Changed func()
	Log     *slog.Logger
}

// A Manager makes and keeps one node's lanes.
type Manager struct {
	o        Options
	requests chan *request
	pings    chan chan struct{} // each is closed when the loop receives it
	policies chan chan struct{} // a request to follow the wanted policy; the loop closes the inner channel after it
	ended    chan struct{}
	unread   []string // files of another release, and why they were not read

	// Only the loop (Run) uses the next four fields.
	disk  *disk
	text  []byte // the applied lanes file
	dirty bool   // the card differs from st
	link  uint64

	mu      sync.Mutex // protects the fields below
	st      *state
	wanted  *desiredPolicy
	applied *engine.Result
	granted map[string]time.Time // when kubelet gave each unit, by the unit's ID
	drifts  map[string][]string  // why lanes are unhealthy, by lane; "" stands for all lanes
	problem string               // why the wanted policy is not applied
	held    map[string]string
	removed bool // nothing is on the card and on disk
	version uint64
	snap    *inventory.Snapshot
	stale   bool // snap is older than the fields above
	changed chan struct{}
}

type request struct {
	ctx    context.Context
	mutate func(*state) error
	// anyway says that the change is accepted even if it cannot be made on the card now.
	anyway bool
	done   chan error
}

// New returns a Manager with the state from the files. Nothing is applied before Run.
func New(o Options) (*Manager, error) {
	disk := newDisk(o.Path, o.RunDir, o.Boot)
	st, unread, err := disk.load()
	if err != nil {
		return nil, err
	}
	for _, why := range unread {
		o.Log.Warn("state is made again from the API server and kubelet", "file", why)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	m := &Manager{
		o: o, disk: disk, st: st, unread: unread, requests: make(chan *request, 256), pings: make(chan chan struct{}),
		policies: make(chan chan struct{}),
		ended:    make(chan struct{}),
		granted:  map[string]time.Time{}, drifts: map[string][]string{}, changed: make(chan struct{}), dirty: true,
	}
	m.publish()
	return m, nil
}

// errEnded is the error of calls to a Manager whose Run has ended.
var errEnded = errors.New("niclane-agent is ending")

// The Manager tries a failed change again after retryFirst. The time doubles with each failure, up
// to retryLast.
const (
	retryFirst = time.Second
	retryLast  = time.Minute
)

// Run first applies the loaded state, then each change, until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	defer close(m.ended)
	m.restore(ctx)
	wait := retryFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-m.requests:
			batch := []*request{r}
			for len(m.requests) > 0 {
				batch = append(batch, <-m.requests)
			}
			m.handle(ctx, batch)
			m.retry(ctx)
			wait = retryFirst
		case ping := <-m.pings:
			close(ping)
		case done := <-m.policies:
			m.follow(ctx)
			close(done)
			wait = retryFirst
		case <-timer.C:
			if m.dirty {
				m.restore(ctx)
			}
			m.mu.Lock()
			failing := m.problem != ""
			m.mu.Unlock()
			if failing {
				m.follow(ctx)
			}
			wait = min(2*wait, retryLast)
		}
		m.mu.Lock()
		idle := !m.dirty && m.problem == ""
		m.mu.Unlock()
		if timer.Stop(); !idle {
			timer.Reset(wait)
		}
	}
}

// Unread returns the state files that were not read, each with the reason. Their state is made again
// from the API server and kubelet. Until the policy is known, the card stays as it is.
func (m *Manager) Unread() []string { return m.unread }

// Alive returns nil when the loop answers, and an error if ctx ends before that.
func (m *Manager) Alive(ctx context.Context) error {
	ping := make(chan struct{})
	select {
	case m.pings <- ping:
		return nil
	case <-m.ended:
		return errEnded
	case <-ctx.Done():
		return fmt.Errorf("the loop that applies lanes does not answer: %w", context.Cause(ctx))
	}
}

// restore makes the card match the state.
func (m *Manager) restore(ctx context.Context) {
	m.mu.Lock()
	st, waits := m.st, len(m.unread) > 0 && m.wanted == nil
	m.mu.Unlock()
	if waits {
		return // the card has what the agent before has made, and st does not have all of it
	}
	if st.Spec == nil && len(m.text) == 0 && !m.dirty {
		return
	}
	if err := m.make(ctx, st); err != nil {
		m.o.Log.Error("the lanes cannot be restored", "error", err)
		m.note(func() { m.problem = err.Error() })
		return
	}
	m.publish()
}

// handle makes a batch of changes by one apply. If the apply fails, it makes the changes one by
// one, so that each gets its own answer.
func (m *Manager) handle(ctx context.Context, batch []*request) {
	m.mu.Lock()
	next := m.st
	m.mu.Unlock()
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
	err := m.make(ctx, next)
	if err == nil {
		err = m.disk.save(next)
		m.dirty = err != nil
	}
	switch {
	case err == nil:
	case len(taken) > 1:
		for _, r := range taken {
			m.handle(ctx, []*request{r})
		}
		return
	case taken[0].anyway:
		m.o.Log.Error("the change is not on the card yet", "error", err)
		m.dirty = true
		if serr := m.disk.save(next); serr != nil {
			m.o.Log.Error("state", "error", serr)
		}
		err = nil
	}
	if err == nil {
		m.set(next)
	}
	for _, r := range taken {
		r.done <- err
	}
	if err == nil {
		m.publish()
	}
}

// set replaces the state by next. Now returns it from then on.
func (m *Manager) set(next *state) {
	m.mu.Lock()
	m.st, m.stale = next, true
	m.mu.Unlock()
}

func (m *Manager) commit(next *state) {
	m.set(next)
	m.publish()
}

// make applies or removes lanes so that the card matches st. The caller then calls publish.
func (m *Manager) make(ctx context.Context, st *state) error {
	if st.Spec == nil || len(st.Spec.Classes) == 0 {
		if m.text == nil && !m.dirty {
			return nil
		}
		if err := m.o.Applier.Remove(ctx); err != nil {
			return err
		}
		m.text, m.dirty = nil, false
		m.made(nil)
		return nil
	}
	device := ""
	if u := st.Spec.Uplink; u.Dev == "" && u.Bond == "" {
		var err error
		if device, err = m.o.Device(); err != nil {
			return err
		}
	}
	f, err := policy.Make(m.o.Config, st.Spec, st.lanes(device, m.link))
	if err != nil {
		return err
	}
	if bytes.Equal(f.Text, m.text) && !m.dirty {
		return nil
	}
	r, err := m.o.Applier.Apply(ctx, f)
	if err != nil {
		return err
	}
	if r.Report != nil {
		for _, w := range r.Report.Warnings {
			m.o.Log.Warn(w)
		}
	}
	m.text, m.dirty = f.Text, false
	if r.State != nil && len(r.Plan.Devices) > 0 {
		if d := r.State.Device(r.Plan.Devices[0]); d != nil {
			m.link = d.Speed
		}
	}
	m.made(r)
	return nil
}

// made records the result of the last apply, nil if no lanes are applied. It does not publish the
// result: the callers of make do. handle first answers the waiting requests.
func (m *Manager) made(r *engine.Result) {
	m.mu.Lock()
	m.applied = r
	m.mu.Unlock()
}

func (m *Manager) note(f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	m.o.Changed()
}

// do sends a change to the loop (Run) and waits until the loop has made it.
func (m *Manager) do(ctx context.Context, anyway bool, mutate func(*state) error) error {
	r := &request{ctx: ctx, mutate: mutate, anyway: anyway, done: make(chan error, 1)}
	select {
	case m.requests <- r:
	case <-m.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-m.ended:
		return errEnded
	}
}

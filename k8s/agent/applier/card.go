// SPDX-License-Identifier: Apache-2.0

// Package card makes a lanes file's lanes on this host as niclane apply does, by
// the same packages, journal and lock, for a process that runs on and applies
// often; and shows package stay what became of them. niclane's commands see its
// lanes as their own: status, verify and rollback work beside it. It decides
// nothing.
package card

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch/host"
)

// A Card is the devices of one lanes file.
type Card struct {
	// StateDir has the journals, RunDir the lock: those of niclane's commands.
	StateDir, RunDir string
	// Config is the absolute path by which the lanes are journalled, and to
	// which the lanes file is written for people to read.
	Config string

	mu    sync.Mutex // of one apply at a time within this process, and what follows
	names host.Names
	watch Watcher
	// generation changes with what is applied beside members.
	generation string
	known      *known        // nil: it has to be looked at
	kernel     *apply.System // kept for the next pod, or nil
	journals   journal.Memory
	saved      saved
}

// A Result is what an apply left.
type Result struct {
	Plan *plan.Plan
	// Done is the number of objects that were written.
	Done     int
	Warnings []string
	// State is that in which the plan was made.
	State *device.State
}

// A RefusedError is a plan that cannot be made on this device. Nothing was
// changed.
type RefusedError struct {
	// Problems by path of the policy.
	Problems []string
}

// Error implements error.
func (e *RefusedError) Error() string { return strings.Join(e.Problems, "; ") }

// Apply makes what the file's lanes lack. If a step fails, what was done is
// undone. It waits for another niclane that is at work, as long as ctx lasts.
func (c *Card) Apply(ctx context.Context, f *policy.File) (*Result, error) {
	// The file first, as a keeper that repairs has it.
	lock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	written := c.write(f.Text)
	defer written() // also if nothing is made of it
	return c.apply(ctx, f, nil, written)
}

// write writes the lanes file while the plan is made, and returns what waits for it,
// as often as it is called.
func (c *Card) write(text []byte) (written func() error) {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(c.Config, text, 0o600) }()
	return sync.OnceValue(func() error { return <-done })
}

// lock waits for the lock of who may write.
func (c *Card) lock(ctx context.Context) (*apply.Lock, error) {
	l, err := apply.TryLock(c.RunDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		l, err = apply.WaitLock(ctx, c.RunDir)
	}
	if err != nil {
		return nil, err
	}
	if err := apply.CheckPending(c.RunDir); err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// apply is Apply with the lock held; no step of an object that leave names. Nothing is
// changed before written has returned, nor if it is an error.
func (c *Card) apply(ctx context.Context, f *policy.File, leave func(key string) bool, written func() error) (*Result, error) {
	to := c.connect()
	defer func() { c.release(to) }()
	store, here, err := c.open()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	store.Use(&c.journals)
	a, err := c.ask(f, store)
	if err != nil {
		return nil, err
	}
	a.host, a.leave, a.written = here, leave, written
	was := c.known
	c.known = nil // until the card is as f says
	if leave == nil && was.knows(a) {
		p, err := was.plan(a)
		var r *Result
		if err == nil {
			r, err = c.make(ctx, a, to, p)
		}
		if !errors.Is(err, errLook) {
			return r, err
		}
		if a, err = c.ask(f, store); err != nil { // what was undone was journalled
			return nil, err
		}
		a.host, a.written = here, written
	}
	to = to.fresh()
	st, err := a.look(ctx, c.RunDir)
	if err != nil {
		return nil, err
	}
	p, err := a.plan(st)
	if err != nil {
		return nil, err
	}
	return c.make(ctx, a, to, planned{Plan: p, state: st})
}

// errLook says that the card has to be looked at.
var errLook = errors.New("it is not known how the card is")

// A planned is a plan and the state in which it was made.
type planned struct {
	*plan.Plan
	state *device.State
	known *known // nil: the card was looked at
	some  *some  // of which members the plan is, nil: of all
}

// make makes what a lacks by its plan. If the card was known and is not so, nothing was
// changed and the error is errLook.
func (c *Card) make(ctx context.Context, a *asked, to *connection, p planned) (*Result, error) {
	if err := a.written(); err != nil {
		return nil, err
	}
	r := &Result{Plan: p.Plan, State: p.state}
	if a.leave != nil {
		p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return a.leave(s.Key()) })
	}
	if len(p.Steps) == 0 && len(p.Forget) == 0 {
		c.known = p.made(a, a.mine, p.state)
		return r, nil
	}
	k, err := to.take()
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if keep {
			c.kernel = k
		} else {
			_ = k.Close() // what it wrote was read back, or is undone
		}
	}()
	k.Prepare(p.Steps)
	leaves := foresee(p)
	who, when := journal.Self()
	j, err := a.store.Begin(journal.Head{
		Host: a.host, Config: c.Config, ConfigText: string(a.file.Text), Who: who, When: when, Devices: p.Devices, Plan: p.Plan,
	})
	if err != nil {
		return nil, err
	}
	if len(p.Steps) == 0 && len(j.Records()) == 0 { // all that there was is gone
		return r, j.Remove()
	}
	report, err := apply.Run(ctx, k, p.Plan, j, apply.Options{})
	switch {
	case err == nil:
	case len(report.Left) > 0:
		return nil, fmt.Errorf("%w; %d objects could not be undone", err, len(report.Left))
	case p.known != nil && ctx.Err() == nil:
		return nil, errLook
	default:
		return nil, fmt.Errorf("%w; the node's card is as it was before", err)
	}
	if !members(p.Steps) || c.generation == "" {
		c.generation = fmt.Sprint(j.Head().Generation, j.Head().When)
	}
	a.store.Keep(j)
	keep = members(p.Steps) // no others need what Prepare loads
	r.Done, r.Warnings = len(report.Done), report.Warnings
	if leaves != nil {
		c.known = p.made(a, []*journal.Journal{j}, leaves())
	}
	if err := c.save(ctx, a, p.Plan, j); err != nil {
		r.Warnings = append(r.Warnings, "what verify compares with could not be kept: "+err.Error())
	}
	return r, nil
}

// member reports whether an object is one of which there are as many as pods.
func member(o device.Object) bool {
	switch o.(type) {
	case device.Rule, device.FilterEntry, device.XDPEntry, device.Flower, device.CgroupClass, device.CgroupPriority:
		return true
	}
	return false
}

// open opens the journals of this boot and network namespace.
func (c *Card) open() (*journal.Store, journal.Host, error) {
	here, err := journal.Here()
	if err != nil {
		return nil, here, err
	}
	store, err := journal.Open(c.StateDir, here)
	return store, here, err
}

// Try plans a file and changes nothing.
func (c *Card) Try(ctx context.Context, f *policy.File) (*plan.Plan, error) {
	store, _, err := c.open()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	a, err := c.ask(f, store)
	if err != nil {
		return nil, err
	}
	st, err := a.look(ctx, c.RunDir)
	if err != nil {
		return nil, err
	}
	return a.plan(st)
}

// asked is what a file asks for, and what there is of it by the journals.
type asked struct {
	file  *policy.File
	store *journal.Store
	host  journal.Host
	leave func(key string) bool
	// written waits for the lanes file.
	written func() error
	// devices and groups to look at.
	devices, groups []string
	mine            []*journal.Journal // of earlier applies of the file
}

func (c *Card) ask(f *policy.File, store *journal.Store) (*asked, error) {
	a := &asked{file: f, store: store, devices: group(f.Intent), groups: host.Groups(f.Intent)}
	if err := store.Conflict(c.Config, a.devices, nil); err != nil {
		return nil, err
	}
	js, err := store.Here()
	for _, j := range js {
		if j.Head().Config != c.Config {
			continue
		}
		if err := host.InPlace(j.Head()); err != nil {
			return nil, err
		}
		a.mine = append(a.mine, j)
		a.groups = host.GroupsOf(a.groups, j)
		for _, d := range j.Head().Devices { // one that the file has no more gets back what it had
			if !slices.Contains(a.devices, d) {
				a.devices = append(a.devices, d)
			}
		}
	}
	return a, err
}

func (a *asked) look(ctx context.Context, runDir string) (*device.State, error) {
	return look(ctx, observe.Options{Devices: a.devices, Cgroups: a.groups, RunDir: runDir, Remember: runDir})
}

func (a *asked) plan(st *device.State) (*plan.Plan, error) {
	var owned plan.Owned // what these have written
	for _, j := range a.mine {
		owned = j.AppendOwned(owned)
	}
	p, err := plan.Make(a.file.Intent, st, owned)
	var errs plan.Errors
	if !errors.As(err, &errs) {
		return p, err
	}
	refused := &RefusedError{}
	for _, e := range errs {
		s := a.file.Locate(e.Path) + ": " + e.Message
		if !slices.Contains(refused.Problems, s) {
			refused.Problems = append(refused.Problems, s)
		}
	}
	return nil, refused
}

// look observes; where a device is absent, all others, so that whoever plans
// says which one it is.
func look(ctx context.Context, o observe.Options) (*device.State, error) {
	st, err := observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		return observe.Observe(ctx, o)
	}
	return st, err
}

func group(in *intent.Intent) []string {
	if in.Group.Bond != "" {
		return []string{in.Group.Bond}
	}
	return slices.Clone(in.Group.Devices)
}

// Remove undoes everything that Apply has made; what somebody else has changed
// since is left, and an error.
func (c *Card) Remove(ctx context.Context) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
	c.disconnect()
	store, here, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	js, err := store.List()
	for _, j := range js {
		h := j.Head()
		if h.Config != c.Config || h.SameBoot(here) && !h.SameNetns(here) {
			continue
		}
		k, kerr := apply.NewKernel(c.RunDir)
		if kerr != nil {
			return kerr
		}
		_, rerr := apply.Rollback(ctx, k, j, here, apply.Options{})
		err = errors.Join(err, rerr, k.Close())
	}
	return err
}

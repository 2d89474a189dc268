// SPDX-License-Identifier: Apache-2.0

// Package card makes a lanes file's lanes on this host as niclane apply does, by
// the same packages, journal and lock, for a process that runs on and applies
// often; and shows package stay what became of them. niclane's commands see its
// lanes as their own: status, verify and rollback work beside it. It decides
// nothing.
package card

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/intent"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/plan"
	"github.com/niclane/niclane/stay/host"
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
	if err := os.WriteFile(c.Config, f.Text, 0o600); err != nil {
		return nil, err
	}
	return c.apply(ctx, f, nil)
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

// apply is Apply with the lock held; no step of an object that leave names.
func (c *Card) apply(ctx context.Context, f *policy.File, leave func(key string) bool) (*Result, error) {
	store, here, err := c.open()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	p, st, err := c.plan(ctx, f, store)
	if err != nil {
		return nil, err
	}
	r := &Result{Plan: p, State: st}
	if leave != nil {
		p.Steps = slices.DeleteFunc(p.Steps, func(s plan.Step) bool { return leave(s.Key()) })
	}
	if len(p.Steps) == 0 {
		return r, nil
	}
	k, err := apply.NewKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	k.Prepare(p.Steps)
	who, when := journal.Self()
	j, err := store.Begin(journal.Head{
		Host: here, Config: c.Config, ConfigText: string(f.Text), Who: who, When: when, Devices: p.Devices, Plan: p,
	})
	if err != nil {
		return nil, err
	}
	report, err := apply.Run(ctx, k, p, j, apply.Options{})
	if err != nil {
		if len(report.Left) > 0 {
			return nil, fmt.Errorf("%w; %d objects could not be undone", err, len(report.Left))
		}
		return nil, fmt.Errorf("%w; the node's card is as it was before", err)
	}
	if slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return !member(s.Object()) }) || c.generation == "" {
		c.generation = fmt.Sprint(j.Head().Generation, j.Head().When)
	}
	r.Done, r.Warnings = len(report.Done), report.Warnings
	if err := c.save(ctx, p, st); err != nil {
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
	p, _, err := c.plan(ctx, f, store)
	return p, err
}

func (c *Card) plan(ctx context.Context, f *policy.File, store *journal.Store) (*plan.Plan, *device.State, error) {
	in := f.Intent
	owned, devices, err := c.owned(store)
	if err != nil {
		return nil, nil, err
	}
	want := group(in)
	if err := store.Conflict(c.Config, want); err != nil {
		return nil, nil, err
	}
	for _, d := range devices { // one that the file has no more gets back what it had
		if !slices.Contains(want, d) {
			want = append(want, d)
		}
	}
	st, err := look(ctx, observe.Options{Devices: want, Cgroups: host.Groups(in), Remember: c.RunDir})
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Make(in, st, owned)
	var errs plan.Errors
	if errors.As(err, &errs) {
		refused := &RefusedError{}
		for _, e := range errs {
			s := f.Locate(e.Path) + ": " + e.Message
			if !slices.Contains(refused.Problems, s) {
				refused.Problems = append(refused.Problems, s)
			}
		}
		return nil, nil, refused
	}
	return p, st, err
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

// owned returns what earlier applies of the file have written, and where.
func (c *Card) owned(s *journal.Store) (owned plan.Owned, devices []string, err error) {
	js, err := s.Here()
	for _, j := range js {
		if j.Head().Config == c.Config {
			owned, devices = j.AppendOwned(owned), append(devices, j.Head().Devices...)
		}
	}
	return owned, devices, err
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
		k, kerr := apply.NewKernel()
		if kerr != nil {
			return kerr
		}
		_, rerr := apply.Rollback(ctx, k, j, here, apply.Options{})
		err = errors.Join(err, rerr, k.Close())
	}
	return err
}

// save keeps the state right after an apply where niclane verify looks for it.
func (c *Card) save(ctx context.Context, p *plan.Plan, before *device.State) error {
	if len(p.Devices) == 0 {
		return nil
	}
	st := before
	if slices.ContainsFunc(p.Steps, remakes) {
		var err error
		if st, err = observe.Observe(ctx, observe.Options{Devices: p.Devices, NoProbes: true}); err != nil {
			return err
		}
	} else {
		changes := make([]device.Change, len(p.Steps))
		for i, s := range p.Steps {
			changes[i] = device.Change{Old: s.Old, New: s.New}
		}
		st = before.After(changes)
	}
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	path, err := c.appliedPath(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// remakes reports whether a step has the driver make its queues anew.
func remakes(s plan.Step) bool {
	switch s.Object().(type) {
	case device.Channels, device.Feature, device.Ring, device.XDP:
		return true
	}
	return false
}

// appliedPath is cmd/niclane's: one file per first device and network namespace.
func (c *Card) appliedPath(p *plan.Plan) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", err
	}
	return filepath.Join(c.RunDir, fmt.Sprintf("applied-%d-%s.json", st.Ino, p.Devices[0])), nil
}

// applied returns the state right after apply, nil if it is not known.
func (c *Card) applied(p *plan.Plan) *device.State {
	if len(p.Devices) == 0 {
		return nil
	}
	path, err := c.appliedPath(p)
	if err != nil {
		return nil
	}
	b, err := os.ReadFile(path)
	st := new(device.State)
	if err != nil || json.Unmarshal(b, st) != nil || st.Schema != device.Schema {
		return nil
	}
	return st
}

// SPDX-License-Identifier: Apache-2.0

package card

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/notify"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/stay"
	"github.com/niclane/niclane/verify"
)

// A Watcher is told what the kernel is to tell about: *notify.Source.
type Watcher interface {
	Watch(in notify.Interest) (grown bool, err error)
}

// Watch has Look keep w's interest.
func (c *Card) Watch(w Watcher) { c.watch = w }

// current returns the journal of the lanes that are applied, nil if there are none.
// close releases the store.
func (c *Card) current() (j *journal.Journal, close func(), err error) {
	store, _, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	js, err := store.Here()
	for _, j := range js {
		if j.Head().Config == c.Config {
			return j, func() { _ = store.Close() }, nil
		}
	}
	return nil, nil, errors.Join(err, store.Close())
}

// Look implements stay.Machine.
func (c *Card) Look(ctx context.Context) ([]stay.View, error) {
	for range 5 {
		views, grown, err := c.look(ctx)
		if err != nil || !grown {
			return views, err
		}
	}
	return nil, errors.New("devices change faster than they can be looked at")
}

func (c *Card) look(ctx context.Context) (views []stay.View, grown bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, release, err := c.current()
	if j == nil || err != nil {
		if c.watch != nil && err == nil { // what is applied later is journalled there
			grown, err = c.watch.Watch(notify.Interest{Dirs: []string{c.StateDir}})
		}
		return nil, grown, err
	}
	defer release()
	h := j.Head()
	a := c.appliedBy(j)
	var groups []string
	if strings.Contains(h.ConfigText, "cgroup:") {
		if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
			groups = cgroups(f.Intent)
		}
	}
	st, err := look(ctx, observe.Options{Devices: h.Devices, Cgroups: groups, NoProbes: true})
	if err != nil {
		return nil, false, err
	}
	v := stay.View{Config: h.Config, Generation: c.generation, Waits: waits(h.Devices, st)}
	for _, f := range verify.State(a, st) {
		if f.Severity == verify.Drift {
			v.Drifts = append(v.Drifts, f)
		}
	}
	if c.watch != nil {
		grown, err = c.watch.Watch(c.interest(h.Devices, groups, st, a.Owned))
	}
	return []stay.View{v}, grown, err
}

func (c *Card) appliedBy(j *journal.Journal) verify.Applied {
	h := j.Head()
	v := verify.Applied{Config: h.Config, Lanes: h.Plan.Lanes, Ended: j.Ended(), State: c.applied(h.Plan)}
	if strings.Contains(h.ConfigText, "\n  bond: ") {
		if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
			v.Bond = f.Intent.Group.Bond
		}
	}
	records := j.Records()
	if undone := !slices.ContainsFunc(j.Steps(), func(s journal.StepState) bool { return s != journal.StepPending }); undone {
		records, v.Ended = h.Before, true // of an apply that failed
	}
	for _, r := range records {
		v.Owned = append(v.Owned, verify.Record{Original: r.Original, Last: r.Last, Part: r.Part, Cause: r.Cause})
	}
	return v
}

// interest is what the kernel is to tell about.
func (c *Card) interest(devices, groups []string, st *device.State, owned []verify.Record) notify.Interest {
	if c.index == nil {
		c.index = map[string]int{}
	}
	in := notify.Interest{Devices: slices.Clone(devices), Dirs: []string{c.StateDir}}
	files := map[string]bool{}
	for _, name := range devices {
		d := st.Device(name)
		if d == nil {
			continue
		}
		c.index[name] = d.Index
		for _, n := range d.NAPIs {
			if n.PID != 0 {
				in.PIDs = append(in.PIDs, n.PID)
			}
		}
		for _, p := range d.Pollers {
			in.PIDs = append(in.PIDs, p.PID)
		}
	}
	in.Indexes = slices.Sorted(maps.Values(c.index))
	for _, r := range owned {
		if f, ok := r.Last.(device.File); ok {
			files[f.Path] = true
		}
	}
	in.Files = slices.Sorted(maps.Keys(files))
	for _, g := range groups {
		for _, mount := range slices.Sorted(maps.Values(st.Cgroups.V1)) {
			in.Births = append(in.Births, path.Join(mount, g))
		}
		if st.Cgroups.V2 != "" {
			in.Births = append(in.Births, path.Join(st.Cgroups.V2, g))
		}
	}
	return in
}

// waits says why nothing can be repaired on devices now.
func waits(devices []string, st *device.State) map[string]string {
	out := map[string]string{}
	for _, name := range devices {
		switch d := st.Device(name); {
		case d == nil:
			out[name] = "there is no device of that name"
		case !d.Up:
			out[name] = "it is down"
		case !d.Carrier:
			out[name] = "it has no carrier"
		}
	}
	return out
}

// Hold implements stay.Machine.
func (c *Card) Hold(context.Context) (func(), error) {
	l, err := apply.TryLock(c.RunDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", stay.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	if err := apply.CheckPending(c.RunDir); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", stay.ErrBusy, err), l.Unlock())
	}
	return func() { _ = l.Unlock() }, nil // the kernel lets go in any case
}

// Repair implements stay.Machine: the lanes as they were applied are applied anew.
func (c *Card) Repair(ctx context.Context, _ string, leave func(string) bool) (stay.Repair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, release, err := c.current()
	if j == nil || err != nil {
		return stay.Repair{}, err
	}
	text := []byte(j.Head().ConfigText)
	release()
	parsed, err := config.ParseFile(c.Config, text)
	if err != nil {
		return stay.Repair{}, err
	}
	r, err := c.apply(ctx, &policy.File{Text: text, Parsed: parsed}, leave)
	if err != nil {
		return stay.Repair{}, err
	}
	out := stay.Repair{Warnings: r.Warnings}
	for _, s := range r.Plan.Steps {
		out.Done = append(out.Done, s.Key())
	}
	return out, nil
}

// Release implements stay.Machine. The kernel's own timer takes over where a
// poller is gone (docs/realisations.md), so that there is nothing to undo.
func (c *Card) Release(context.Context, string, []verify.Finding) ([]string, error) { return nil, nil }

// DeviceOf returns the device of this network namespace that has exactly this
// address, "" if none has. Uppers that have the same address as what is below
// them are not known: an address belongs to one device.
func DeviceOf(addr string) (string, error) {
	want := net.ParseIP(addr)
	if want == nil {
		return "", fmt.Errorf("%q is no IP address", addr)
	}
	links, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(want) {
				return l.Name, nil
			}
		}
	}
	return "", nil
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/verify"
)

// Applied is what a journal says of its lanes, and what there was right after apply, for
// verify to compare with.
func (e *Engine) Applied(j *journal.Journal) verify.Applied {
	return appliedBy(j, e.applied(j.Head()).State)
}

func appliedBy(j *journal.Journal, state *device.State) verify.Applied {
	h := j.Head()
	v := verify.Applied{Config: h.Config, Bond: bondOf(h), Sharing: h.Plan.Sharing, Lanes: h.Plan.Lanes,
		Ended: j.Ended() && !j.Partly(), State: state}
	records := j.Records()
	if j.RolledBack() {
		return verify.Applied{Config: h.Config, Ended: true, Left: len(records)}
	}
	steps := j.Steps() // none: of a plan that has only forgotten
	if undone := !slices.ContainsFunc(steps,
		func(s journal.StepState) bool { return s != journal.StepPending }); undone && len(steps) > 0 {
		// The last apply failed and put back what it found, which may have
		// been drift already: what the one before it left is to be there.
		records, v.Ended = h.Before, true
	}
	for _, r := range records {
		v.Owned = append(v.Owned, r.Record)
	}
	return v
}

// bondOf is the bond that the lanes of a journal span, "" if there is none. Most
// files name none, and reading one with a thousand members takes a while.
func bondOf(h *journal.Head) string {
	if !strings.Contains(strings.ToLower(h.ConfigText), "bond") {
		return ""
	}
	f, err := config.ParseFile(h.Config, []byte(h.ConfigText))
	if err != nil {
		return ""
	}
	return f.Intent.Group.Bond
}

// A View is one file's lanes and the machine as it is now.
type View struct {
	// Journal has what was applied. It must not be recorded into.
	Journal *journal.Journal
	Applied verify.Applied
	// Now is without devices that have the names of displaced ones.
	Now *device.State
	// Findings compare the two (verify.State).
	Findings []verify.Finding
	// Since tells the last apply that made more than members from others.
	Since string
	// Groups are the control groups that were looked at.
	Groups []string
	// Known is false if a device is absent, and all others of the namespace were read
	// instead.
	Known bool
}

// Drifted reports whether a finding is a drift.
func (v *View) Drifted() bool { return verify.Found(v.Findings, verify.Drift) > 0 }

// Look compares what is applied here with the machine as it is now: the lanes of those
// journals that which says, nil for all. It waits for no other process.
func (e *Engine) Look(ctx context.Context, which func(*journal.Journal) bool) ([]*View, error) {
	// The journals too: one of before an apply and the machine of after it differ.
	defer e.Memory.lock()()
	was := e.Memory.forget()
	js, err := e.journals()
	if len(js) == 0 && err == nil {
		e.Memory.clear() // somebody else has removed them
	}
	if err != nil {
		return nil, err
	}
	var views []*View
	for _, j := range js {
		if which != nil && !which(j) {
			continue
		}
		v, err := e.view(ctx, j)
		if err != nil {
			return nil, err
		}
		e.Memory.looked(was, v)
		views = append(views, v)
	}
	return views, nil
}

func (e *Engine) view(ctx context.Context, j *journal.Journal) (*View, error) {
	h := j.Head()
	state := e.applied(h)
	v := &View{Journal: j, Applied: appliedBy(j, state.State), Groups: groupsOf(j), Since: state.Of}
	if v.Since == "" {
		v.Since = applyOf(h)
	}
	var err error
	if v.Applied.Displaced, err = Displaced(h, false); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Config, err)
	}
	if v.Now, v.Known, err = e.Observe(ctx, h.Devices, v.Groups); err != nil {
		return nil, fmt.Errorf("%s: %w", h.Config, err)
	}
	v.Now, v.Known = without(v.Now, v.Applied.Displaced), v.Known && len(v.Applied.Displaced) == 0
	v.Findings = verify.State(v.Applied, v.Now)
	return v, nil
}

// Observe reads devices, with what they depend on, without probing what they can do;
// known is false if one of them is absent, and all others of the namespace were read
// instead.
func (e *Engine) Observe(ctx context.Context, devices, groups []string) (st *device.State, known bool, err error) {
	return observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir, NoProbes: true})
}

// look reads what planning needs to know. Where a device is absent, planning says which
// one, in which line, and which ones there are.
func (e *Engine) look(ctx context.Context, devices, groups []string) (*device.State, error) {
	st, _, err := observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir,
		Remember: e.RunDir})
	return st, err
}

// observeAll observes; where a device is absent, all others.
func observeAll(ctx context.Context, o observe.Options) (st *device.State, known bool, err error) {
	st, err = observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		st, err = observe.Observe(ctx, o)
		return st, false, err
	}
	return st, true, err
}

// groupsOf are the control groups that a journal's file names, and those that it records
// objects of. Few files name any, and reading one of a thousand members takes a while.
func groupsOf(j *journal.Journal) []string {
	h := j.Head()
	var named []string
	if strings.Contains(strings.ToLower(h.ConfigText), "cgroup") {
		if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
			named = Groups(f.Intent)
		}
	}
	return recordedGroups(named, j)
}

// recordedGroups adds to control groups those that journals record objects of: lanes
// that have them no more leave them as they were.
func recordedGroups(named []string, js ...*journal.Journal) []string {
	out := slices.Clone(named)
	root := sync.OnceValue(func() string {
		c, err := cgroup.Find(nil)
		if err != nil {
			return "" // who looks at the machine says so
		}
		return c.CpusetDir("/")
	})
	for _, j := range js {
		for _, r := range j.Records() {
			o := r.Last
			if o == nil {
				o = r.Original
			}
			group := device.GroupOf(o)
			if o, is := o.(device.File); is {
				if dir, file := path.Split(o.Path); strings.HasPrefix(file, "cpuset.") && root() != "" {
					if below, is := strings.CutPrefix(path.Clean(dir), strings.TrimSuffix(root(), "/")); is {
						group = below
					}
				}
			}
			if group != "" && !slices.Contains(out, group) {
				out = append(out, group)
			}
		}
	}
	return out
}

// absent are those of names that are not there.
func absent(names []string, there func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), there)
}

// Groups are the control groups that lanes name.
func Groups(in *intent.Intent) []string {
	var groups []string
	for _, l := range in.Lanes {
		for _, m := range l.Members {
			if m.Cgroup != "" {
				groups = append(groups, m.Cgroup)
			}
		}
	}
	return groups
}

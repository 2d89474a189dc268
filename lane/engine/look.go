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

// Applied returns the journal's lanes and the state right after the apply, for verify to
// compare with.
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
	steps := j.Steps() // none for a plan that only forgets
	if undone := !slices.ContainsFunc(steps,
		func(s journal.StepState) bool { return s != journal.StepPending }); undone && len(steps) > 0 {
		// The last apply failed and restored what it found, which may already
		// have been drift. The state after the apply before it is wanted.
		records, v.Ended = h.Before, true
	}
	for _, r := range records {
		v.Owned = append(v.Owned, r.Record)
	}
	return v
}

// bondOf returns the bond that the lanes of a journal span, "" if there is none. It parses
// only files that contain the word, because a file with a thousand members takes a while.
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

// A View is one file's lanes compared with the machine now.
type View struct {
	// Journal is the file's journal. Do not record into it.
	Journal *journal.Journal
	Applied verify.Applied
	// Now is the present state, without devices that have the names of displaced ones.
	Now *device.State
	// Findings are the result of verify.State for Applied and Now.
	Findings []verify.Finding
	// Since identifies the last apply that changed more than members.
	Since string
	// Groups are the control groups that Now includes.
	Groups []string
	// Known is false if a device is absent. Then Now has all other devices of the
	// namespace.
	Known bool
}

// Drifted reports whether a finding is a drift.
func (v *View) Drifted() bool { return verify.Found(v.Findings, verify.Drift) > 0 }

// Look compares the applied lanes with the machine now: those of the journals that which
// selects, nil for all. It does not wait for other processes.
func (e *Engine) Look(ctx context.Context, which func(*journal.Journal) bool) ([]*View, error) {
	// The lock covers the journals too: they must be of the same apply as the machine's
	// state.
	defer e.Memory.lock()()
	was := e.Memory.forget()
	js, err := e.journals()
	if len(js) == 0 && err == nil {
		e.Memory.clear() // another program removed them
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

// Observe reads devices, and what they depend on, without probing capabilities. If a device
// is absent, known is false, and st has all other devices of the namespace.
func (e *Engine) Observe(ctx context.Context, devices, groups []string) (st *device.State, known bool, err error) {
	return observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir, NoProbes: true})
}

// look reads the state for planning. If a device is absent, planning names it, its line,
// and the present devices.
func (e *Engine) look(ctx context.Context, devices, groups []string) (*device.State, error) {
	st, _, err := observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir,
		Remember: e.RunDir})
	return st, err
}

// observeAll reads the devices, or, if one is absent, all others.
func observeAll(ctx context.Context, o observe.Options) (st *device.State, known bool, err error) {
	st, err = observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		st, err = observe.Observe(ctx, o)
		return st, false, err
	}
	return st, true, err
}

// groupsOf returns the control groups in a journal's file and those of its recorded objects.
// It parses only files that contain the word, because a thousand members take a while.
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

// recordedGroups adds the control groups of recorded objects, because a group that the
// lanes no longer name must be restored.
func recordedGroups(named []string, js ...*journal.Journal) []string {
	out := slices.Clone(named)
	root := sync.OnceValue(func() string {
		c, err := cgroup.Find(nil)
		if err != nil {
			return "" // the reader of the machine reports it
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

// absent returns the names for which there is false.
func absent(names []string, there func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), there)
}

// Groups returns the control groups that lanes name.
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

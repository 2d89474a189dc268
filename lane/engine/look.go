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

// Applied returns what verify compares with the machine: the journal's lanes, and the state right
// after the apply.
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
	steps := j.Steps() // a plan without steps has none
	if undone := !slices.ContainsFunc(steps,
		func(s journal.StepState) bool { return s != journal.StepPending }); undone && len(steps) > 0 {
		// The last apply failed and restored what it had found. That may have differed from niclane's
		// values already. The wanted values are those of the apply before.
		records, v.Ended = h.Before, true
	}
	for _, r := range records {
		v.Owned = append(v.Owned, r.Record)
	}
	return v
}

// bondOf returns the bond that the lanes of a journal span, "" if there is none. It parses the
// file only if the text contains the word bond, because parsing a thousand members takes long.
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

// A View compares the lanes of one file with the present state of the machine.
type View struct {
	// Journal is the journal of the file. The caller must not record into it.
	Journal *journal.Journal
	Applied verify.Applied
	// Now is the present state. If a device was renamed and another one has its old name, the other
	// one is not in Now.
	Now *device.State
	// Findings are what verify.State returns for Applied and Now.
	Findings []verify.Finding
	// Since identifies the last apply that changed more than members. It changes with each such
	// apply.
	Since string
	// Groups are the control groups that Now has.
	Groups []string
	// Known is false if a device of the file is absent. Now then has all other devices of the
	// namespace.
	Known bool
}

// Drifted reports whether at least one finding is a drift.
func (v *View) Drifted() bool { return verify.Found(v.Findings, verify.Drift) > 0 }

// Look compares applied lanes with the present state of the machine. which selects the journals;
// nil selects all. Look does not wait for other processes.
func (e *Engine) Look(ctx context.Context, which func(*journal.Journal) bool) ([]*View, error) {
	// The lock also covers the reading of the journals: journals and machine must be of the same
	// apply.
	defer e.Memory.lock()()
	was := e.Memory.forget()
	js, err := e.journals()
	if len(js) == 0 && err == nil {
		e.Memory.clear() // another program has removed the journals
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

// Observe reads the state of devices, and of what they depend on. It does not probe capabilities.
// If a device is absent, known is false and st has all other devices of the namespace.
func (e *Engine) Observe(ctx context.Context, devices, groups []string) (st *device.State, known bool, err error) {
	return observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir, NoProbes: true})
}

// look reads the state for planning. If a device is absent, it reads all devices: planning then
// reports the absent one, with its line and the names of the present ones.
func (e *Engine) look(ctx context.Context, devices, groups []string) (*device.State, error) {
	st, _, err := observeAll(ctx, observe.Options{Devices: devices, Cgroups: groups, RunDir: e.RunDir,
		Remember: e.RunDir})
	return st, err
}

// observeAll reads the devices. If one is absent, it reads all devices of the namespace.
func observeAll(ctx context.Context, o observe.Options) (st *device.State, known bool, err error) {
	st, err = observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		st, err = observe.Observe(ctx, o)
		return st, false, err
	}
	return st, true, err
}

// groupsOf returns the control groups that a journal's file names, and those of its recorded
// objects. It parses the file only if the text contains the word cgroup, because parsing a
// thousand members takes long.
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

// recordedGroups returns named and the control groups of recorded objects. A group that the lanes
// no longer name must still be restored.
func recordedGroups(named []string, js ...*journal.Journal) []string {
	out := slices.Clone(named)
	root := sync.OnceValue(func() string {
		c, err := cgroup.Find(nil)
		if err != nil {
			return "" // observing the machine reports this error
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

// absent returns those names for which there returns false.
func absent(names []string, there func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), there)
}

// Groups returns the control groups that the lanes name.
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

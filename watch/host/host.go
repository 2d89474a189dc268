// SPDX-License-Identifier: Apache-2.0

// Package host is what all keepers of lanes do with this host: it says what is
// applied, how it is now, what the kernel is to tell about, and what repairs stand
// on. niclane watch and niclane-agent are made of it. It takes no lock but Hold's,
// keeps no journal, and decides nothing: package stay does.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
)

// Hold takes the lock of who may write, or is stay.ErrBusy.
func Hold(runDir string) (func(), error) {
	l, err := apply.TryLock(runDir)
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%w: %w", stay.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	release := func() { _ = l.Unlock() } // the kernel lets go in any case
	if err := apply.CheckPending(runDir); err != nil {
		release()
		return nil, fmt.Errorf("%w: %w", stay.ErrBusy, err)
	}
	return release, nil
}

// Applied is what a journal says of its lanes, for verify to compare with; state is
// what there was right after apply, nil if it is not known.
func Applied(j *journal.Journal, state *device.State) verify.Applied {
	h := j.Head()
	v := verify.Applied{Config: h.Config, Bond: bondOf(h), Sharing: h.Plan.Sharing, Lanes: h.Plan.Lanes, Ended: j.Ended() && !j.Partly(), State: state}
	records := j.Records()
	if j.RolledBack() {
		return verify.Applied{Config: h.Config, Ended: true, Left: len(records)}
	}
	steps := j.Steps() // none: of a plan that has only forgotten
	if undone := !slices.ContainsFunc(steps, func(s journal.StepState) bool { return s != journal.StepPending }); undone && len(steps) > 0 {
		// The last apply failed and put back what it found, which may have
		// been drift already: what the one before it left is to be there.
		records, v.Ended = h.Before, true
	}
	for _, r := range records {
		v.Owned = append(v.Owned, verify.Record{Original: r.Original, Last: r.Last, Part: r.Part, Cause: r.Cause})
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

// noIOUring is the sysctl that takes io_uring away, and the pollers with it.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// Basis is what repairs need beside the devices: control groups and io_uring.
func Basis(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

// Look compares nothing yet: it reads what a journal has made, with state right after
// apply, and how the machine is now, without devices that have the names of displaced ones.
// known is false if a device is absent, and all others of the namespace were read instead.
func Look(ctx context.Context, runDir string, j *journal.Journal, state *device.State, groups []string) (a verify.Applied, now *device.State, known bool, err error) {
	a = Applied(j, state)
	if a.Displaced, err = Displaced(j.Head(), false); err != nil {
		return a, nil, false, err
	}
	now, known, err = Observe(ctx, runDir, j.Head().Devices, groups)
	if err != nil {
		return a, nil, false, err
	}
	return a, Without(now, a.Displaced), known && len(a.Displaced) == 0, nil
}

// Observe reads devices, with what they depend on; known is false if one
// of them is absent, and all others of the namespace were read instead.
func Observe(ctx context.Context, runDir string, devices, groups []string) (st *device.State, known bool, err error) {
	o := observe.Options{Devices: devices, Cgroups: groups, RunDir: runDir, NoProbes: true}
	st, err = observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		st, err = observe.Observe(ctx, o)
		return st, false, err
	}
	return st, true, err
}

// GroupsOf are control groups that lanes name, and those that journals record
// objects of: lanes that have them no more leave them as they were.
func GroupsOf(named []string, js ...*journal.Journal) []string {
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
			group := ""
			switch o := o.(type) {
			case device.CgroupClass:
				group = o.Cgroup
			case device.CgroupPriority:
				group = o.Cgroup
			case device.File:
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

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/config"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/notify"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/observe"
	"github.com/niclane/niclane/stay"
	"github.com/niclane/niclane/verify"
)

// lookAgain bounds how often the machine is looked at once more because what is
// of interest has changed meanwhile.
const lookAgain = 5

// A machine is this host, as a watch sees it.
type machine struct {
	a      *app
	source *notify.Source
	report func(stay.Event)
	// config is the one file that is kept, "" for all.
	config string
	// first of its devices.
	first string
	// claims are the locks of the devices, nil where another watch has it.
	claims map[string]*apply.Lock
	// index is the interface number of each device when it was last there.
	index map[string]int
}

func (m *machine) close() error {
	var errs []error
	for _, l := range m.claims {
		if l != nil {
			errs = append(errs, l.Unlock())
		}
	}
	if m.source != nil {
		errs = append(errs, m.source.Close())
	}
	return errors.Join(errs...)
}

// claim makes this process the device's one watch.
func (m *machine) claim(dev string) error {
	if m.claims[dev] != nil {
		return nil
	}
	st, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	l, err := apply.TryLockNamed(m.a.runDir, fmt.Sprintf("watch-%d-%s.lock", inode(st), dev))
	var locked *apply.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%s is watched already: process %d (%s), since %s; a device has one watch",
			dev, locked.Holder.PID, strings.Join(locked.Holder.Command, " "), locked.Holder.Since.Format(time.RFC3339))
	}
	if err == nil {
		m.claims[dev] = l
	}
	return err
}

// claimAll claims the devices of all that is applied.
func (m *machine) claimAll() error {
	js, err := m.journals()
	if err != nil {
		return err
	}
	if len(js) == 0 {
		m.report(stay.Event{Time: time.Now(), Kind: stay.Waiting, Text: "no lanes are applied here: what is applied from now on is kept"})
	}
	for _, j := range js {
		for _, dev := range j.Head().Devices {
			if err := m.claim(dev); err != nil {
				return err
			}
		}
	}
	return nil
}

// journals are those of this boot and namespace that are kept.
func (m *machine) journals() ([]*journal.Journal, error) {
	s, err := m.a.openStore()
	if s == nil || err != nil {
		return nil, err
	}
	defer s.Close()
	js, err := s.Here()
	return slices.DeleteFunc(js, func(j *journal.Journal) bool {
		return m.config != "" && j.Head().Config != m.config
	}), err
}

// ours leaves out what another watch keeps.
func (m *machine) ours(js []*journal.Journal) []*journal.Journal {
	return slices.DeleteFunc(js, func(j *journal.Journal) bool {
		for _, dev := range j.Head().Devices {
			err := m.claim(dev)
			if err == nil {
				continue
			}
			if _, said := m.claims[dev]; !said {
				m.claims[dev] = nil
				m.report(stay.Event{Time: time.Now(), Kind: stay.Notice, Config: j.Head().Config, Device: dev, Text: err.Error()})
			}
			return true
		}
		return false
	})
}

// Look implements stay.Machine.
func (m *machine) Look(ctx context.Context) ([]stay.View, error) {
	for range lookAgain {
		views, grown, err := m.look(ctx)
		if err != nil || !grown {
			return views, err
		}
	}
	return nil, errors.New("devices change faster than they can be looked at")
}

func (m *machine) look(ctx context.Context) (views []stay.View, grown bool, err error) {
	js, err := m.journals()
	if err != nil {
		return nil, false, err
	}
	js = m.ours(js)
	var all notify.Interest
	for _, j := range js {
		h := j.Head()
		var groups []string
		if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
			groups = cgroupsOf(f.Intent)
		}
		st, known, err := observeDevices(ctx, h.Devices, groups)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", h.Config, err)
		}
		applied := m.a.appliedBy(j)
		v := stay.View{Config: h.Config, Generation: fmt.Sprintf("%d %s", h.Generation, h.When), Ground: basis(st), Waits: m.waits(h.Devices, st)}
		for _, f := range verify.State(applied, st) {
			if f.Severity == verify.Drift {
				v.Drifts = append(v.Drifts, f)
			}
		}
		views = append(views, v)
		merge(&all, m.interest(interests{st, h.Devices, known, groups, applied.Owned}))
		if applied.Bond != "" { // it says when slaves come and go
			merge(&all, notify.Interest{Devices: []string{applied.Bond}})
		}
	}
	merge(&all, notify.Interest{Dirs: []string{m.a.stateDir}, Births: []string{m.a.stateDir}})
	grown, err = m.source.Watch(all)
	return views, grown, err
}

// noIOUring is the sysctl that takes io_uring away, and the pollers with it.
const noIOUring = "/proc/sys/kernel/io_uring_disabled"

// basis is what repairs need beside the devices: control groups and io_uring.
func basis(st *device.State) string {
	b, err := os.ReadFile(noIOUring)
	return fmt.Sprint(st.Cgroups.Groups, st.Cgroups.V2Groups, st.Cgroups.PrioGroups, string(b), err)
}

func merge(all *notify.Interest, in notify.Interest) {
	all.Devices = append(all.Devices, in.Devices...)
	all.Indexes = append(all.Indexes, in.Indexes...)
	all.Files = append(all.Files, in.Files...)
	all.Dirs = append(all.Dirs, in.Dirs...)
	all.Births = append(all.Births, in.Births...)
	all.PIDs = append(all.PIDs, in.PIDs...)
}

// observeDevices reads devices, with what they depend on; known is false if one
// of them is absent, and all others of the namespace were read instead.
func observeDevices(ctx context.Context, devices, groups []string) (st *device.State, known bool, err error) {
	o := observe.Options{Devices: devices, Cgroups: groups, NoProbes: true}
	st, err = observe.Observe(ctx, o)
	if errors.Is(err, unix.ENODEV) {
		o.Devices = nil
		st, err = observe.Observe(ctx, o)
		return st, false, err
	}
	return st, true, err
}

// interests are where the interest in one file's lanes comes from.
type interests struct {
	st      *device.State
	devices []string
	known   bool // st has these devices, and what they depend on, alone
	groups  []string
	owned   []verify.Record
}

// interest is what the kernel is to tell about.
func (m *machine) interest(from interests) notify.Interest {
	in := notify.Interest{Devices: slices.Clone(from.devices)}
	files := map[string]bool{noIOUring: true}
	for i := range from.st.Devices {
		d := &from.st.Devices[i]
		if !from.known && !slices.Contains(from.devices, d.Name) {
			continue
		}
		m.index[d.Name] = d.Index
		in.Indexes = append(in.Indexes, d.Index)
		for _, n := range d.NAPIs {
			if n.PID != 0 {
				in.PIDs = append(in.PIDs, n.PID)
			}
		}
		for _, p := range d.Pollers {
			in.PIDs = append(in.PIDs, p.PID)
		}
		for name := range from.st.Files {
			if strings.HasPrefix(name, "/sys/class/net/"+d.Name+"/") {
				files[name] = true
			}
		}
		for _, i := range d.IRQs {
			files[fmt.Sprintf("/proc/irq/%d/smp_affinity_list", i.Number)] = true
			files[fmt.Sprintf("/proc/irq/%d/smp_affinity", i.Number)] = true // the same setting by another name
		}
	}
	for _, dev := range from.devices {
		if index := m.index[dev]; index != 0 && !slices.Contains(in.Indexes, index) {
			in.Indexes = append(in.Indexes, index) // it may have another name
		}
	}
	for _, r := range from.owned {
		if f, ok := r.Last.(device.File); ok {
			files[f.Path] = true
		}
	}
	in.Files = slices.Sorted(maps.Keys(files))
	for _, g := range from.groups {
		mounts := slices.Collect(maps.Values(from.st.Cgroups.V1))
		if from.st.Cgroups.V2 != "" {
			mounts = append(mounts, from.st.Cgroups.V2)
		}
		for _, mount := range mounts {
			in.Births = append(in.Births, path.Join(mount, g))
		}
	}
	return in
}

// waits says why nothing can be repaired on devices now.
func (m *machine) waits(devices []string, st *device.State) map[string]string {
	var out map[string]string
	for _, dev := range devices {
		if why := m.wait(dev, st.Device(dev)); why != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[dev] = why
		}
	}
	return out
}

func (m *machine) wait(dev string, d *device.Device) string {
	switch {
	case d == nil:
		if link, err := net.InterfaceByIndex(m.index[dev]); m.index[dev] != 0 && err == nil {
			return fmt.Sprintf("it is called %s now, and its lanes went with it: nobody keeps them until it has its name again (ip link set %s name %s)",
				link.Name, link.Name, dev)
		}
		return "there is no device of that name in this network namespace: its lanes are made as soon as there is"
	case !d.Up:
		return "it is down: its lanes are made as soon as it is up"
	case !d.Carrier:
		return "it has no carrier: its lanes are made as soon as it has one"
	}
	return ""
}

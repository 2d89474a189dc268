// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// A Finder finds a device or control group that may have another name now. Without a
// Finder, apply assumes that names never change.
type Finder interface {
	// Called returns the present name of the device with was's interface
	// number, "" if that is another device.
	Called(was device.Link) (string, error)
	// Find looks for the device in all network namespaces.
	Find(was device.Link) (observe.Present, error)
	// Group returns the directory of the control group that o belongs to, ""
	// for none, and its inode number, 0 if the directory does not exist.
	Group(o device.Object) (dir string, id uint64, err error)
}

// A MovedError says that a device is in another network namespace now, with niclane's
// programs on it.
type MovedError struct {
	Device string
	// Netns is that namespace, Name the device's name there.
	Netns, Name string
}

// Error implements error.
func (e *MovedError) Error() string {
	return fmt.Sprintf("%s is in %s now, as %s, and niclane's XDP program went with it: move it back (ip link set "+
		"%s netns ...), then niclane rollback",
		e.Device, e.Netns, e.Name, e.Name)
}

// A follower reads and writes objects by the journal's names of their devices, also after a
// rename. For an object whose device or control group is gone, it returns unix.ENODEV, even
// if another one has that name now.
type follower struct {
	finderKernel
	ground plan.Ground
	// names maps the journal's names to different present ones.
	names map[string]string
	// lost are devices that are not in this network namespace, with the reason.
	lost map[string]error
}

// A finderKernel is the interface that a follower needs.
type finderKernel interface {
	Kernel
	ManyReader
	Occupier
	Evictor
	Finder
}

// newRunner returns a runner that follows the devices in g, if k can find them.
func newRunner(k Kernel, g plan.Ground, opts Options) (*runner, error) {
	r := &runner{k: k, opts: opts}
	fk, ok := k.(finderKernel)
	if !ok {
		return r, nil
	}
	r.follow = &follower{finderKernel: fk, ground: g, names: map[string]string{}, lost: map[string]error{}}
	r.k = r.follow
	_, err := r.follow.look()
	return r, err
}

// look finds the devices again, and reports whether one has another name or state than at
// the last look.
func (f *follower) look() (changed bool, err error) {
	names := map[string]string{}
	for _, was := range f.ground.Links {
		if f.lost[was.Name] != nil {
			continue
		}
		name, err := f.finderKernel.Called(was)
		if err != nil {
			return false, fmt.Errorf("%s: %w", was.Name, err)
		}
		if name == "" {
			present, err := f.finderKernel.Find(was)
			if err != nil {
				return false, fmt.Errorf("%s: %w", was.Name, err)
			}
			switch name = present.Name; {
			case name == "":
				f.lost[was.Name], changed = unix.ENODEV, true
				continue
			case present.Netns != "":
				f.lost[was.Name], changed = &MovedError{was.Name, present.Netns, name}, true
				continue
			}
		}
		if name != was.Name {
			names[was.Name] = name
		}
	}
	changed = changed || !maps.Equal(names, f.names)
	f.names = names
	return changed, nil
}

// look calls the follower's look. Without a follower nothing changes.
func (r *runner) look() (changed bool, err error) {
	if r.follow == nil {
		return false, nil
	}
	return r.follow.look()
}

// steady returns an error if a device has another name than in the journal, or is gone.
func (f *follower) steady() error {
	if _, err := f.look(); err != nil {
		return err
	}
	for _, was := range f.ground.Links {
		if why := f.lost[was.Name]; errors.Is(why, unix.ENODEV) {
			return fmt.Errorf("%s: it is gone, or another device has its name: %w", was.Name, why)
		} else if why != nil {
			return why
		}
		if now := f.names[was.Name]; now != "" {
			return fmt.Errorf("%s: it was renamed to %s after the plan was made", was.Name, now)
		}
	}
	return nil
}

// blame adds the present names of renamed devices to an error that a device was not found.
func (r *runner) blame(err error) error {
	if !vanished(err) || r.steady() == nil || len(r.follow.names) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(r.follow.renamed(), ", "))
}

// renamed describes the devices that have another name now.
func (f *follower) renamed() []string {
	var out []string
	for _, was := range slices.Sorted(maps.Keys(f.names)) {
		out = append(out, fmt.Sprintf("%s is called %s now", was, f.names[was]))
	}
	return out
}

// there returns o with the present name of its device, or why the device is lost.
func (f *follower) there(o device.Object) (device.Object, error) {
	if o == nil {
		return o, nil
	}
	if len(f.ground.Groups) > 0 {
		if err := f.sameGroup(o); err != nil {
			return nil, err
		}
	}
	if len(f.names) == 0 && len(f.lost) == 0 {
		return o, nil
	}
	dev := device.DeviceOf(o)
	if why := f.lost[dev]; why != nil {
		if _, process := o.(device.Poller); process { // the process is still here, without its device
			return o, nil
		}
		return nil, why
	}
	if now := f.names[dev]; now != "" {
		return device.Renamed(o, now), nil
	}
	return o, nil
}

func (f *follower) sameGroup(o device.Object) error {
	dir, id, err := f.finderKernel.Group(o)
	if err != nil || dir == "" {
		return err
	}
	if was := f.ground.Groups[dir]; was != 0 && id != 0 && id != was {
		return fmt.Errorf("%s: another control group has this name now: %w", dir, unix.ENODEV)
	}
	return nil
}

// back returns an object with the journal's name of its device.
func (f *follower) back(o, as device.Object) device.Object {
	if o == nil || len(f.names) == 0 {
		return o
	}
	return device.Renamed(o, device.DeviceOf(as))
}

// Read implements Kernel.
func (f *follower) Read(o device.Object) (device.Object, error) {
	now, err := f.there(o)
	if err != nil {
		return nil, err
	}
	got, err := f.finderKernel.Read(now)
	return f.back(got, o), err
}

// ReadMany implements ManyReader.
func (f *follower) ReadMany(objects []device.Object) ([]device.Object, error) {
	now := make([]device.Object, len(objects))
	for i, o := range objects {
		var err error
		if now[i], err = f.there(o); err != nil {
			return nil, err
		}
	}
	got, err := f.finderKernel.ReadMany(now)
	if err != nil || len(got) != len(objects) {
		return got, err
	}
	for i, o := range objects {
		got[i] = f.back(got[i], o)
	}
	return got, nil
}

// Write implements Kernel.
func (f *follower) Write(old, next device.Object) error {
	o, err := f.there(old)
	if err != nil {
		return err
	}
	n, err := f.there(next)
	if err != nil {
		return err
	}
	return f.finderKernel.Write(o, n)
}

// Occupants implements Occupier.
func (f *follower) Occupants(o device.Object) ([]string, error) {
	now, err := f.there(o)
	if err != nil {
		return nil, err
	}
	return f.finderKernel.Occupants(now)
}

// Evict implements Evictor.
func (f *follower) Evict(o device.Object, who []string) ([]string, error) {
	now, err := f.there(o)
	if err != nil {
		return nil, err
	}
	return f.finderKernel.Evict(now, who)
}

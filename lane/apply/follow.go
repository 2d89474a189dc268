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

// A Finder finds a device or control group again, although its name may have changed. If a Kernel
// is no Finder, apply assumes that names never change.
type Finder interface {
	// Called returns the present name of the device that has the identity in was. It looks the
	// device up by its interface number, and returns "" if another device has that number now, or
	// none.
	Called(was device.Link) (string, error)
	// Find looks for the device in all network namespaces.
	Find(was device.Link) (observe.Present, error)
	// Group returns the directory of the control group that o belongs to, "" for none. id is the
	// directory's inode number, 0 if the directory does not exist.
	Group(o device.Object) (dir string, id uint64, err error)
}

// A MovedError says that a device was moved to another network namespace. niclane's programs on
// the device moved with it.
type MovedError struct {
	Device string
	// Netns is the device's new namespace, Name its name there.
	Netns, Name string
}

// Error implements error.
func (e *MovedError) Error() string {
	return fmt.Sprintf("%s is in %s now, as %s, and niclane's XDP program went with it: move it back (ip link set "+
		"%s netns ...), then niclane rollback",
		e.Device, e.Netns, e.Name, e.Name)
}

// A follower is a Kernel that finds renamed devices. Callers use the names in the journal; it
// replaces them by the present names. If an object's device or control group is gone, it returns
// unix.ENODEV, even if a new one has the same name.
type follower struct {
	finderKernel
	ground plan.Ground
	// names maps a device's name in the journal to its present name, if the two differ.
	names map[string]string
	// lost maps devices that are no longer in this network namespace to the reason.
	lost map[string]error
}

// A finderKernel has all interfaces of a kernel that a follower needs.
type finderKernel interface {
	Kernel
	ManyReader
	Occupier
	Evictor
	Finder
}

// newRunner returns a runner. If k can find devices, the runner follows the devices in g.
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

// look finds the present names of the devices. It reports whether, since the last look, a name
// has changed or a device was lost.
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

// look finds the devices again, with follower.look. Without a follower, it reports no change.
func (r *runner) look() (changed bool, err error) {
	if r.follow == nil {
		return false, nil
	}
	return r.follow.look()
}

// steady returns an error if a device is gone or does not have its name from the journal.
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

// blame adds the present names of renamed devices to err if err says that a device does not
// exist.
func (r *runner) blame(err error) error {
	if !vanished(err) || r.steady() == nil || len(r.follow.names) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(r.follow.renamed(), ", "))
}

// renamed returns a text for each renamed device.
func (f *follower) renamed() []string {
	var out []string
	for _, was := range slices.Sorted(maps.Keys(f.names)) {
		out = append(out, fmt.Sprintf("%s is called %s now", was, f.names[was]))
	}
	return out
}

// there returns o with the present name of its device. If the device is lost, it returns the
// reason as an error.
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
		if _, process := o.(device.Poller); process { // the poller's process runs without the device
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

// back returns o with the device name of as, which is the name in the journal.
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

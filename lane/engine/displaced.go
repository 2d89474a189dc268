// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
)

// Displaced says of the devices of a journal which ones are called something else now,
// by the names that the journal has for them: another device may have these. Of those
// that are not in this network namespace it says so only if anywhere, and only if they
// are in another one: that takes a look into each.
func Displaced(h *journal.Head, anywhere bool) (map[string]string, error) {
	if len(h.Ground.Links) == 0 {
		return nil, nil
	}
	f, err := observe.OpenFinder()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	for _, was := range h.Ground.Links {
		var now observe.Present
		if anywhere {
			now, err = f.Find(was)
		} else {
			now.Name, err = f.Here(was)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", was.Name, err)
		case now.Netns != "":
			out[was.Name] = fmt.Sprintf("it is in %s now, as %s", now.Netns, now.Name)
		case now.Name != "" && now.Name != was.Name:
			out[was.Name] = fmt.Sprintf("it is called %s now", now.Name)
		}
	}
	return out, nil
}

// inPlace returns an error if a device of a journal is called something else now: what
// would be planned by its old name is about another device.
func inPlace(h *journal.Head) error {
	displaced, err := Displaced(h, false)
	for _, dev := range slices.Sorted(maps.Keys(displaced)) {
		return fmt.Errorf("%s: its lanes are on %s, but %s: give it its name back, or niclane rollback first", h.Config,
			dev, displaced[dev])
	}
	return err
}

// without is st without devices that have the names of displaced ones.
func without(st *device.State, displaced map[string]string) *device.State {
	if len(displaced) == 0 {
		return st
	}
	less := *st
	less.Devices = slices.DeleteFunc(slices.Clone(st.Devices),
		func(d device.Device) bool { return displaced[d.Name] != "" })
	less.Files = maps.Clone(st.Files)
	maps.DeleteFunc(less.Files, func(_ string, f device.File) bool { return displaced[device.DeviceOf(f)] != "" })
	return &less
}

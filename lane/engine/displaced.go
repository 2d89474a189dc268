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

// Displaced returns the devices of a journal that have another name now, with a description. The
// map's key is the old name; another device may have that name now. If anywhere is true,
// Displaced looks for missing devices in all network namespaces.
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

// inPlace returns an error if a device of a journal was renamed. Another device may have its old
// name, and a plan would change that device.
func inPlace(h *journal.Head) error {
	displaced, err := Displaced(h, false)
	for _, dev := range slices.Sorted(maps.Keys(displaced)) {
		return fmt.Errorf("%s: its lanes are on %s, but %s: rename it back, or niclane rollback first", h.Config,
			dev, displaced[dev])
	}
	return err
}

// without returns st without the devices whose names are keys of displaced: they are other
// devices with an old name.
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

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

// Called implements Finder.
func (s *System) Called(was device.Link) (string, error) {
	l, err := s.finder.Link(was.Index)
	if errors.Is(err, unix.ENODEV) || err == nil && !l.Same(was) {
		return "", nil
	}
	return l.Name, err
}

// Find implements Finder.
func (s *System) Find(was device.Link) (observe.Present, error) { return s.finder.Find(was) }

// Group implements Finder.
func (s *System) Group(o device.Object) (dir string, id uint64, err error) {
	if dir = s.groups.GroupDir(o); dir == "" {
		return "", 0, nil
	}
	id, err = cgroup.ID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, 0, nil
	}
	return dir, id, err
}

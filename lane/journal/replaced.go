// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// replacedSuffix follows the name of a journal that another generation has replaced.
const replacedSuffix = ".replaced"

// keep gives the journal of a name, which is about to be replaced, a second one.
func (s *Store) keep(name string) error {
	if err := ignoreAbsent(unix.Unlinkat(s.fd, name+replacedSuffix, 0)); err != nil {
		return err
	}
	return ignoreAbsent(unix.Linkat(s.fd, name, s.fd, name+replacedSuffix, 0))
}

// previous returns the journal that the one of a name and a head has replaced, nil if
// it was not kept. It is read under the name that it has now.
func (s *Store) previous(name string, h *Head) *Journal {
	old, err := s.load(name + replacedSuffix)
	if err != nil || !old.head.SameNetns(h.Host) || old.head.Config != h.Config || old.head.Generation != h.Generation-1 {
		return nil
	}
	return old
}

// Revertible reports whether the journal that j has replaced was kept, or there was
// none: what the plan of j has changed can be undone alone.
func (j *Journal) Revertible() bool {
	return len(j.head.Before) == 0 || j.store != nil && j.store.previous(j.name, &j.head) != nil
}

// AllUndone reports whether every step of the plan was undone, or none was made.
func (j *Journal) AllUndone() bool {
	steps := j.Steps()
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s StepState) bool { return s != StepPending })
}

// Revert puts the journal that j has replaced in its place again, if it was kept: every
// step of j is undone. j cannot be used any more then.
func (j *Journal) Revert() error {
	if j.store == nil || j.store.previous(j.name, &j.head) == nil {
		return nil
	}
	if err := j.Close(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := unix.Renameat(j.store.fd, j.name+replacedSuffix, j.store.fd, j.name); err != nil {
		return fmt.Errorf("journal: %w", &fs.PathError{Op: "rename", Path: j.Path() + replacedSuffix, Err: err})
	}
	return nil
}

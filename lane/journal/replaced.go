// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// replacedSuffix ends the name of a journal that a later generation has replaced.
const replacedSuffix = ".replaced"

// keep links a second name to a journal that is about to be replaced.
func (s *Store) keep(name string) error {
	if err := ignoreAbsent(unix.Unlinkat(s.fd, name+replacedSuffix, 0)); err != nil {
		return err
	}
	return ignoreAbsent(unix.Linkat(s.fd, name, s.fd, name+replacedSuffix, 0))
}

// kept reports whether the journal that this one has replaced was kept and can be read.
func (s *Store) kept(name string, h *Head) bool {
	old, err := s.load(name + replacedSuffix)
	return err == nil && h.follows(&old.head)
}

// keptHead is like kept, but checks the head's SHA-256 and does not decode the records.
func (s *Store) keptHead(name string, h *Head) bool {
	b, err := s.read(name + replacedSuffix)
	if err != nil {
		return false
	}
	b, _, err = cutHead(b)
	var old Head
	if first, _, _ := bytes.Cut(b, []byte("\n")); err == nil {
		err = json.Unmarshal(first, &old)
	}
	return err == nil && h.follows(&old)
}

// follows reports whether h is the next generation of old.
func (h *Head) follows(old *Head) bool {
	return old.SameNetns(h.Host) && old.Config == h.Config && old.Generation == h.Generation-1
}

// Revertible reports whether the journal that j has replaced was kept, or there was none.
// Then the plan of j can be undone alone.
func (j *Journal) Revertible() bool {
	return len(j.head.Before) == 0 || j.store != nil && j.store.kept(j.name, &j.head)
}

// AllUndone reports whether every step of the plan was undone, or none was made.
func (j *Journal) AllUndone() bool {
	steps := j.Steps()
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s StepState) bool { return s != StepPending })
}

// Revert restores the journal that j has replaced, if it was kept. Every step of j must be
// undone. j cannot be used afterwards.
func (j *Journal) Revert() error {
	if j.store == nil || !j.store.kept(j.name, &j.head) {
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

// RemoveOrRevert removes a journal that records nothing any more. If only its own steps are
// undone, it restores the previous journal.
func (j *Journal) RemoveOrRevert() error {
	switch {
	case len(j.Records()) == 0:
		return j.Remove()
	case j.AllUndone(): // an earlier generation still owns something
		return j.Revert()
	}
	return nil
}

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

// replacedSuffix is the end of the file name of a journal that the next generation has replaced.
const replacedSuffix = ".replaced"

// keep gives a journal that will be replaced a second name, so that its file continues to exist.
func (s *Store) keep(name string) error {
	if err := ignoreAbsent(unix.Unlinkat(s.fd, name+replacedSuffix, 0)); err != nil {
		return err
	}
	return ignoreAbsent(unix.Linkat(s.fd, name, s.fd, name+replacedSuffix, 0))
}

// kept reports whether the journal of the generation before h still exists and can be read.
func (s *Store) kept(name string, h *Head) bool {
	old, err := s.load(name + replacedSuffix)
	return err == nil && h.follows(&old.head)
}

// keptHead is like kept, but faster: it checks the head's SHA-256 and does not decode the
// records.
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

// Revertible reports whether the plan of j can be undone alone: the journal of the generation
// before still exists, or there was none.
func (j *Journal) Revertible() bool {
	return len(j.head.Before) == 0 || j.store != nil && j.store.kept(j.name, &j.head)
}

// AllUndone reports whether no step of the plan is in force: each was undone or never made.
func (j *Journal) AllUndone() bool {
	steps := j.Steps()
	return len(steps) > 0 && !slices.ContainsFunc(steps, func(s StepState) bool { return s != StepPending })
}

// Revert restores the journal of the generation before, if it still exists. Every step of j must
// be undone. j cannot be used after that.
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

// RemoveOrRevert removes the journal if it has no records. If it has only records of earlier
// generations, it restores the journal of the generation before.
func (j *Journal) RemoveOrRevert() error {
	switch {
	case len(j.Records()) == 0:
		return j.Remove()
	case j.AllUndone(): // an earlier generation still owns something
		return j.Revert()
	}
	return nil
}

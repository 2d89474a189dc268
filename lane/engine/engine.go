// SPDX-License-Identifier: Apache-2.0

// Package engine does all that happens between a lanes file and lanes on this host: look, plan,
// lock, journal, apply, remember, compare, confirm, roll back. The command, the watch and the
// Kubernetes agent use it. They know of each other's lanes, because they share the journals in a
// state directory and the lock in a run directory.
//
// It works in the network namespace of the calling thread. It needs CAP_NET_ADMIN, CAP_BPF and
// the further capabilities that the objects of a plan need. It prints nothing.
package engine

import (
	"errors"
	"io/fs"

	"github.com/niclane/niclane/lane/journal"
)

// The default directories of the command.
const (
	DefaultStateDir = journal.DefaultDir
	DefaultRunDir   = "/run/niclane"
)

// An Engine makes, compares and undoes lanes on this host.
type Engine struct {
	// StateDir contains the journals. RunDir contains the lock, the pollers' sockets and
	// the state after each apply. Processes that share lanes use the same directories.
	StateDir, RunDir string
	// Warn is called with each problem that does not stop the work, as one sentence. It may be nil.
	Warn func(string)
	// Memory is for a process that applies often: it keeps data from one call to the next. With nil,
	// nothing is kept.
	Memory *Memory
}

func (e *Engine) warn(what ...string) {
	if e.Warn == nil {
		return
	}
	for _, w := range what {
		e.Warn(w)
	}
}

// open opens the journals for writing. It creates their directory if necessary.
func (e *Engine) open() (*journal.Store, journal.Host, error) {
	return e.store(journal.Open)
}

// existing opens the journals for reading. It returns nil if nothing was ever applied with this
// state directory.
func (e *Engine) existing() (*journal.Store, journal.Host, error) {
	s, here, err := e.store(journal.OpenExisting)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, here, nil
	}
	return s, here, err
}

func (e *Engine) store(open func(string, journal.Host) (*journal.Store, error)) (*journal.Store, journal.Host, error) {
	here, err := journal.Here()
	if err != nil {
		return nil, here, err
	}
	s, err := open(e.StateDir, here)
	if err == nil && e.Memory != nil {
		s.Use(&e.Memory.journals)
	}
	return s, here, err
}

// Journals returns the journals of this boot and network namespace. The caller must not record
// into them.
func (e *Engine) Journals() ([]*journal.Journal, error) {
	defer e.Memory.lock()()
	return e.journals()
}

func (e *Engine) journals() ([]*journal.Journal, error) {
	s, _, err := e.existing()
	if s == nil || err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Here()
}

// elsewhere reports whether a journal belongs to another network namespace of this boot.
func elsewhere(j *journal.Journal, here journal.Host) bool {
	return j.Head().SameBoot(here) && !j.Head().SameNetns(here)
}

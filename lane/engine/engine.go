// SPDX-License-Identifier: Apache-2.0

// Package engine is the one sequence by which a lanes file becomes lanes on this host
// and is undone: look, plan, lock, journal, apply, remember, compare, confirm, roll
// back. The command, the watch and the Kubernetes agent are made of it, and see each
// other's lanes: the journals in a state directory and the lock in a run directory are
// what they share.
//
// It works in the network namespace of the calling thread, needs CAP_NET_ADMIN,
// CAP_BPF and what the objects of a plan need beside these, and prints nothing.
package engine

import (
	"errors"
	"io/fs"

	"github.com/niclane/niclane/lane/journal"
)

// The directories of the command.
const (
	DefaultStateDir = journal.DefaultDir
	DefaultRunDir   = "/run/niclane"
)

// An Engine makes, compares and undoes lanes on this host.
type Engine struct {
	// StateDir has the journals, RunDir the lock, the pollers' sockets and what an
	// apply has left to compare with. Who is to see the same lanes has the same.
	StateDir, RunDir string
	// Warn is told of what went wrong beside the work itself, a sentence each. It
	// may be nil.
	Warn func(string)
	// Memory is what a process that applies often keeps between calls; nil: nothing.
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

// open opens the journals to write, and makes their directory.
func (e *Engine) open() (*journal.Store, journal.Host, error) {
	return e.store(journal.Open)
}

// existing opens the journals to read; nil means that nothing was ever applied with
// this state directory.
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

// Journals returns the journals of this boot and network namespace, for reading.
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

// elsewhere reports whether a journal is of another network namespace of this boot.
func elsewhere(j *journal.Journal, here journal.Host) bool {
	return j.Head().SameBoot(here) && !j.Head().SameNetns(here)
}

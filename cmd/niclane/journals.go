// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"

	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch/host"
)

// openStore opens the journals for reading; nil means that nothing was ever
// applied on this machine.
func (a *app) openStore() (*journal.Store, error) {
	here, err := journal.Here()
	if err != nil {
		return nil, err
	}
	s, err := journal.OpenExisting(a.stateDir, here)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return s, err
}

// journals returns those of this boot and network namespace.
func (a *app) journals() ([]*journal.Journal, error) {
	s, err := a.openStore()
	if s == nil || err != nil {
		return nil, err
	}
	return s.Here()
}

// ofConfig is what earlier applies of a config have written, and where.
type ofConfig struct {
	plan.Owned
	devices, groups []string
}

// ownedBy reads the journals of a config; store is nil where there can be none.
func ownedBy(s *journal.Store, config string) (of ofConfig, err error) {
	if s == nil {
		return of, nil
	}
	js, err := s.Here()
	for _, j := range js {
		if err == nil && j.Head().Config == config {
			of.Owned, of.devices = j.AppendOwned(of.Owned), append(of.devices, j.Head().Devices...)
			of.groups = host.GroupsOf(of.groups, j)
			err = host.InPlace(j.Head())
		}
	}
	return of, err
}

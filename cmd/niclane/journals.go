// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"

	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
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

// ownedBy returns what an earlier apply of the same config has written, and on
// which devices.
func ownedBy(s *journal.Store, config string) (owned plan.Owned, devices []string, err error) {
	if s == nil {
		return owned, nil, nil
	}
	js, err := s.Here()
	if err != nil {
		return owned, nil, err
	}
	for _, j := range js {
		if j.Head().Config == config {
			owned, devices = j.AppendOwned(owned), append(devices, j.Head().Devices...)
		}
	}
	return owned, devices, nil
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// A Comparison compares the lanes of one file with the kernel.
type Comparison struct {
	*View
	// Rebooted says that the file was applied before this boot, so none of its lanes exists.
	Rebooted bool
}

// Compare compares applied lanes with the kernel. of is a lanes file, or a device that a file
// governs, or "" for all. No other process can apply during that time. If the function also is
// not nil, Compare calls it for each comparison of this boot, before it releases the lock.
func (e *Engine) Compare(ctx context.Context, of string, also func(i int, c *Comparison)) ([]Comparison, error) {
	lock, err := e.lock(ctx, false)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	defer e.Memory.lock()()
	js, here, err := e.all()
	if err != nil {
		return nil, err
	}
	if js, err = named(js, of); err != nil {
		return nil, err
	}
	var out []Comparison
	for i, j := range js {
		c := Comparison{View: &View{Journal: j}}
		h := j.Head()
		if !h.SameBoot(here) {
			c.Rebooted, c.View.Findings = true, rebooted(h)
			out = append(out, c)
			continue
		}
		if c.View, err = e.view(ctx, j); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(h.Devices, func(d string) bool { return c.Now.Device(d) == nil }) {
			if c.Applied.Displaced, err = Displaced(h, true); err != nil {
				return nil, fmt.Errorf("%s: %w", h.Config, err)
			}
			c.Findings = verify.State(c.Applied, c.Now)
		}
		if also != nil {
			also(i, &c)
		}
		out = append(out, c)
	}
	return out, nil
}

func rebooted(h *journal.Head) []verify.Finding {
	return []verify.Finding{{
		Severity: verify.Drift, Key: "journal", Want: "the boot in which the lanes were applied", Found: "a later one",
		Meaning: "the machine was rebooted since: no lane of this file is left", Repair: "niclane apply " + h.Config,
	}}
}

// all returns the journals of this network namespace. It also returns journals of earlier boots,
// which must only be removed.
func (e *Engine) all() ([]*journal.Journal, journal.Host, error) {
	s, here, err := e.existing()
	if s == nil || err != nil {
		return nil, here, err
	}
	defer s.Close()
	js, err := s.List()
	if err != nil {
		return nil, here, err
	}
	return slices.DeleteFunc(js, func(j *journal.Journal) bool { return elsewhere(j, here) }), here, nil
}

// Fitted returns the lanes in force and their devices. dev is a device, a bond, or "" for all. It
// skips lanes of an unfinished rollback, and lanes of a device that was renamed.
func (e *Engine) Fitted(dev string) (fitted []plan.FittedLane, devices []string, err error) {
	js, err := e.Journals()
	if err != nil {
		return nil, nil, err
	}
	for _, j := range js {
		displaced, err := Displaced(j.Head(), false)
		if err != nil {
			return nil, nil, err
		}
		for _, l := range j.Head().Plan.Lanes {
			other := dev != "" && l.Device != dev && bondOf(j.Head()) != dev
			if j.RolledBack() || displaced[l.Device] != "" || other {
				continue
			}
			fitted = append(fitted, l)
			if !slices.Contains(devices, l.Device) {
				devices = append(devices, l.Device)
			}
		}
	}
	if len(fitted) == 0 && dev != "" {
		return nil, nil, fmt.Errorf("no lane is applied to %s", dev)
	}
	return fitted, devices, nil
}

// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/internal/testing/fakekernel/golden"
	"github.com/niclane/niclane/internal/testing/fakekernel/mutate"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// A watched kernel checks after every write that each queue is in only one RSS table: the default
// one, or that of one lane.
type watched struct {
	*fakekernel.Kernel
	breach error
}

func (w *watched) Write(old, next device.Object) error {
	err := w.Kernel.Write(old, next)
	if berr := fenced(w.Objects()); berr != nil && w.breach == nil {
		w.breach = fmt.Errorf("from %v to %v: %w", old, next, berr)
	}
	return err
}

func fenced(objects map[string]device.Object) error {
	owner := map[string]string{} // table that has the queue, by device and queue
	for key, o := range objects {
		t, ok := o.(device.RSSTable)
		if !ok {
			continue
		}
		for _, q := range t.Queues {
			queue := fmt.Sprintf("%s/%d", t.Dev, q)
			if have, ok := owner[queue]; ok && have != key && lanes(objects, t.Dev) {
				return fmt.Errorf("queue %s is in %s and %s", queue, have, key)
			}
			owner[queue] = key
		}
	}
	return nil
}

// lanes reports whether a device has RSS contexts other than the default.
func lanes(objects map[string]device.Object, dev string) bool {
	for _, o := range objects {
		if t, ok := o.(device.RSSTable); ok && t.Dev == dev && t.Context != 0 {
			return true
		}
	}
	return false
}

// check returns an error if a plan cannot be applied, does not reach the wanted state, ever has a
// queue in two tables, or cannot be rolled back.
func check(c golden.Case, r run, steps []plan.Step) error {
	p := &plan.Plan{Devices: r.plan.Devices, Steps: steps}
	k := &watched{Kernel: r.kernel.Clone()}
	j := newJournal(p, r.before)
	if _, err := apply.Run(context.Background(), k, p, j, apply.Options{}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	again, err := golden.Plan(c.Lanes, k.State(), owned(j.Records()))
	if err != nil {
		return fmt.Errorf("plan again: %w", err)
	}
	if len(again.Steps) > 0 {
		return fmt.Errorf("not what was asked for: %s", again.Steps[0].Key())
	}
	if _, err := apply.Rollback(context.Background(), k, j, here, apply.Options{}); err != nil {
		return fmt.Errorf("rollback: %w", err)
	}
	if k.String() != r.original {
		return errors.New("rollback does not lead back")
	}
	return k.breach
}

// TestMutants tests the checks: about a thousand wrong plans, made by mutation, must each fail.
func TestMutants(t *testing.T) {
	total := 0
	for _, c := range golden.Cases(t, "../plan/testdata") {
		t.Run(c.Name, func(t *testing.T) {
			r, err := prepare(c)
			must.Do(t, err)
			if err := check(c, r, r.plan.Steps); err != nil {
				t.Fatalf("the plan itself: %v", err)
			}
			for _, m := range mutate.All(r.plan.Steps) {
				total++
				if check(c, r, m.Steps) == nil {
					t.Errorf("not found wrong: %s", m.Name)
				}
			}
		})
	}
	if total < 300 {
		t.Errorf("only %d mutants", total)
	}
	t.Logf("%d mutants", total)
}

// TestLostUndo removes one record after another from the journal. A rollback without that record
// must not look like a full one.
func TestLostUndo(t *testing.T) {
	for _, c := range golden.Cases(t, "../plan/testdata") {
		t.Run(c.Name, func(t *testing.T) {
			r, err := prepare(c)
			must.Do(t, err)
			records := applied(t, r.kernel, r.plan, r.before).Records()
			for i, lost := range records {
				if goesWith(lost, records) {
					continue
				}
				k := r.kernel.Clone()
				rest := newJournal(&plan.Plan{}, slices.Delete(slices.Clone(records), i, i+1))
				_, err := apply.Rollback(context.Background(), k, rest, here, apply.Options{})
				if err == nil && k.String() == r.original {
					t.Errorf("the loss of %s is not seen", lost.Key())
				}
			}
		})
	}
}

// goesWith reports whether the kernel removes the lost object together with an object of the
// other records.
func goesWith(lost journal.Record, records []journal.Record) bool {
	return slices.ContainsFunc(records, func(r journal.Record) bool {
		o := lost.Last
		if o == nil {
			o = lost.Original
		}
		if q, ok := r.Last.(device.Qdisc); ok && q.Mode != "" {
			_, is := o.(device.Flower)
			_, param := o.(device.DriverParam)
			is = is || param && lost.Original == nil
			if t, ok := o.(device.RSSTable); is || ok && t.Context == 0 {
				return true
			}
		}
		if _, ok := r.Last.(device.Channels); ok && lost.Original == nil {
			if _, thread := o.(device.Thread); thread || mutate.OfQueue(o) {
				return true
			}
		}
		if r.Original != nil || lost.Original != nil {
			t, isThread := lost.Last.(device.Thread)
			if !isThread || lost.Original != nil {
				return false
			}
			napi, ok := r.Original.(device.NAPIConfig)
			all, isFile := r.Original.(device.File)
			return ok && napi.Dev == t.Dev && napi.Queue == t.Queue ||
				isFile && all.Path == "/sys/class/net/"+t.Dev+"/threaded"
		}
		switch o := lost.Last.(type) {
		case device.FilterEntry:
			return r.Key() == o.Filter
		case device.FilterDefault:
			return r.Key() == o.Filter
		case device.FilterLink:
			return r.Key() == o.Filter
		case device.FilterShare:
			return r.Key() == o.Filter
		case device.Tunnels:
			return r.Key() == o.Filter
		case device.CPUQueue, device.CPUThread, device.CPULane, device.XDPEntry:
			_, isXDP := r.Last.(device.XDP)
			return isXDP
		}
		return false
	})
}

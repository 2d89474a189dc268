// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// Each apply writes the state right after it and the counters into the run directory, which
// lasts as long as the kernel's state. verify compares with that state; status counts from
// those counters.

// remember records the state after the steps of j; before is the state before them. With
// keep, later changes by other programs stay differences, and counters continue, unless the
// queues have changed.
func (e *Engine) remember(j *journal.Journal, keep bool, before *device.State) error {
	h := j.Head()
	p := h.Plan
	if len(p.Devices) == 0 {
		return nil
	}
	if keep {
		path, err := e.appliedPath(p.Devices[0])
		if err != nil {
			return err
		}
		// The journal has the state of members. In the first generation, the file in the
		// run directory belongs to other lanes.
		if _, err := os.Stat(path); err == nil && h.Generation > 1 && members(p.Steps) {
			return nil
		}
		was := e.applied(h).State
		anew := was == nil || slices.ContainsFunc(p.Steps,
			func(s plan.Step) bool { _, is := s.Object().(device.Channels); return is }) ||
			slices.ContainsFunc(p.Devices,
				func(dev string) bool { return !sameQueues(was.Device(dev), before.Device(dev)) })
		if !anew {
			return e.writeApplied(h, after(was, p.Steps, j.Records()))
		}
	}
	st := before
	if slices.ContainsFunc(p.Steps, remakes) {
		var err error
		if st, err = observe.Observe(context.Background(),
			observe.Options{Devices: p.Devices, RunDir: e.RunDir, NoProbes: true}); err != nil {
			return err
		}
		st = after(st, nil, j.Records())
	} else {
		st = after(st, p.Steps, j.Records()) // all steps were read back
	}
	if err := e.writeApplied(h, st); err != nil {
		return err
	}
	return e.writeCounters(p.Devices)
}

func sameQueues(a, b *device.Device) bool {
	return a != nil && b != nil && a.RxQueues == b.RxQueues && a.TxQueues == b.TxQueues
}

// remakes reports whether a step makes the driver recreate its queues and NAPIs, or change
// their number: with an XDP program, virtio_net has more receive queues and another RSS
// table.
func remakes(s plan.Step) bool {
	switch s.Object().(type) {
	case device.Channels, device.Feature, device.Ring, device.XDP:
		return true
	}
	return false
}

// after returns the state after the steps, without the members that niclane has added.
// Readers take these from the journal: with a thousand members, they would be 99 % of the
// state.
func after(before *device.State, steps []plan.Step, owned []journal.Record) *device.State {
	all := changes(steps)
	for _, r := range owned {
		if r.Last != nil && member(r.Last) {
			all = append(all, device.Change{Old: r.Last, New: r.Original})
		}
	}
	return before.After(all)
}

// member reports whether an object is of a kind with as many objects as members.
func member(o device.Object) bool {
	return device.Matches(o) || device.GroupOf(o) != ""
}

// An appliedState is the state right after an apply, and the identity of that apply.
type appliedState struct {
	Of string `json:"of,omitempty"`
	*device.State
}

// applyOf returns the identity of an apply.
func applyOf(h *journal.Head) string {
	return ofGeneration(h, h.Generation) + h.When.Format(time.RFC3339)
}

// ofGeneration returns the prefix of the identities of a generation's applies.
func ofGeneration(h *journal.Head, n int) string { return fmt.Sprintf("%s %d ", h.Config, n) }

// replacedSuffix ends the file name of the state of the previous apply, which is used again
// when the last one is undone.
const replacedSuffix = ".replaced"

// writeApplied records a state as the one right after the apply, and keeps the previous one.
func (e *Engine) writeApplied(h *journal.Head, st *device.State) error {
	b, err := json.Marshal(appliedState{applyOf(h), st})
	if err != nil {
		return err
	}
	path, err := e.appliedPath(h.Plan.Devices[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		_ = os.Remove(path + ".new") // there may be no room for its name, either
		return err
	}
	// The state of an undone apply is not the previous one.
	if strings.HasPrefix(readApplied(path).Of, ofGeneration(h, h.Generation-1)) {
		if err := os.Rename(path, path+replacedSuffix); err != nil {
			return err
		}
	}
	return os.Rename(path+".new", path)
}

// applied returns the state right after the apply of h, or the last known one; a nil state
// if none is known.
func (e *Engine) applied(h *journal.Head) appliedState {
	if len(h.Plan.Devices) == 0 {
		return appliedState{}
	}
	path, err := e.appliedPath(h.Plan.Devices[0])
	if err != nil {
		return appliedState{}
	}
	last := readApplied(path)
	if of := applyOf(h); last.Of != of {
		if before := readApplied(path + replacedSuffix); before.Of == of {
			return before
		}
	}
	return last
}

func readApplied(path string) (s appliedState) {
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &s) != nil || s.State == nil || s.Schema != device.Schema {
		return appliedState{}
	}
	return s
}

func (e *Engine) writeCounters(devices []string) error {
	for _, dev := range devices {
		c, err := observe.Counters(dev)
		if err != nil {
			return err
		}
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		path, err := e.countersPath(dev)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Counters returns a device's counters right after the apply, zero ones if not known.
func (e *Engine) Counters(dev string) device.Counters {
	var c device.Counters
	path, err := e.countersPath(dev)
	if err != nil {
		return c
	}
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &c) != nil {
		return device.Counters{}
	}
	return c
}

// forget removes the records of lanes that no longer exist.
func (e *Engine) forget(devices []string) error {
	for _, dev := range devices {
		counters, err := e.countersPath(dev)
		if err != nil {
			return err
		}
		applied, err := e.appliedPath(dev)
		if err != nil {
			return err
		}
		for _, path := range []string{counters, applied, applied + replacedSuffix} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) countersPath(dev string) (string, error) { return e.runFile("counters", dev) }

func (e *Engine) appliedPath(dev string) (string, error) { return e.runFile("applied", dev) }

// runFile returns the path of a file per device and network namespace.
func (e *Engine) runFile(what, dev string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", err
	}
	return filepath.Join(e.RunDir, fmt.Sprintf("%s-%d-%s.json", what, st.Ino, dev)), nil
}

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

// After each apply, the run directory has two files: the state right after the apply, and the
// counters at that time. verify compares with that state, and status counts from these counters.
// The run directory is lost at a reboot, as the kernel's state is.

// remember records the state after the steps of j. before is the state before them. With keep,
// changes by other programs are not added to that state, so verify continues to report them.
// Counters are then not recorded again, unless the queues have changed.
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
		// If only members have changed, nothing is to record: their objects are in the journal. In the
		// first generation, the file in the run directory is of other lanes.
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
		st = after(st, p.Steps, j.Records()) // all steps were read back, so the state is known
	}
	if err := e.writeApplied(h, st); err != nil {
		return err
	}
	return e.writeCounters(p.Devices)
}

func sameQueues(a, b *device.Device) bool {
	return a != nil && b != nil && a.RxQueues == b.RxQueues && a.TxQueues == b.TxQueues
}

// remakes reports whether the driver makes queues and NAPIs again in this step, or changes their
// number. A step with an XDP program is one: on virtio_net, it changes the number of receive
// queues and the RSS table.
func remakes(s plan.Step) bool {
	switch s.Object().(type) {
	case device.Channels, device.Feature, device.Ring, device.XDP:
		return true
	}
	return false
}

// after returns the state after the steps, without members' objects that niclane has made.
// Readers of the state take these from the journal: with a thousand members, they would be 99 %
// of it.
func after(before *device.State, steps []plan.Step, owned []journal.Record) *device.State {
	all := changes(steps)
	for _, r := range owned {
		if r.Last != nil && member(r.Last) {
			all = append(all, device.Change{Old: r.Last, New: r.Original})
		}
	}
	return before.After(all)
}

// member reports whether an object is of a kind of which each member has at least one object.
func member(o device.Object) bool {
	return device.Matches(o) || device.GroupOf(o) != ""
}

// An appliedState is the state right after an apply. Of identifies the apply.
type appliedState struct {
	Of string `json:"of,omitempty"`
	*device.State
}

// applyOf returns a text that identifies an apply.
func applyOf(h *journal.Head) string {
	return ofGeneration(h, h.Generation) + h.When.Format(time.RFC3339)
}

// ofGeneration returns the text with which the identities of a generation's applies begin.
func ofGeneration(h *journal.Head, n int) string { return fmt.Sprintf("%s %d ", h.Config, n) }

// replacedSuffix is the end of a file name. The file has the state of the previous apply, which
// is valid again after the last apply is undone.
const replacedSuffix = ".replaced"

// writeApplied writes the state right after an apply. It keeps the file of the previous apply.
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
		_ = os.Remove(path + ".new") // the disk may be full, also for the file's name
		return err
	}
	// Do not keep the state if it is of an apply that was undone.
	if strings.HasPrefix(readApplied(path).Of, ofGeneration(h, h.Generation-1)) {
		if err := os.Rename(path, path+replacedSuffix); err != nil {
			return err
		}
	}
	return os.Rename(path+".new", path)
}

// applied returns the state right after the apply of h. If that is not known, it returns the last
// known state, or nil.
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

// Counters returns a device's counters right after the apply. They are zero if not known.
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

// forget removes the state and the counters of devices that no longer have lanes.
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

// runFile returns the path of a file in the run directory, for a device of this network
// namespace.
func (e *Engine) runFile(what, dev string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", err
	}
	return filepath.Join(e.RunDir, fmt.Sprintf("%s-%d-%s.json", what, st.Ino, dev)), nil
}

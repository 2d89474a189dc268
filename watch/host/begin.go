// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/watch"
)

// A Waiting says what Begin does while it waits for the devices and control groups of a lanes file.
type Waiting struct {
	// Events delivers notifications. After each, Begin looks again.
	Events <-chan notify.Event
	// Ready is called with a text about what Begin waits for. The process then counts as ready, so a
	// boot does not wait for a device that may never come. Alive is called at each look, and every
	// Heartbeat if that is set.
	Ready     func(what string)
	Alive     func()
	Heartbeat time.Duration
}

// Begin makes this process the only keeper of a lanes file's devices. It waits until the devices
// and control groups exist, makes the lanes, and returns. It returns earlier if lanes of an earlier
// apply are in place and only control groups are missing. The keeper then keeps those lanes.
func (m *Machine) Begin(ctx context.Context, f *engine.File, w Waiting) error {
	for _, dev := range f.Devices() {
		if err := m.lock(dev); err != nil {
			return err
		}
	}
	told := map[string]string{}
	for {
		waits, err := m.awaited(ctx, f)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if kept, err := m.kept(waits); kept || err != nil {
			return err
		}
		if len(waits) == 0 {
			err := m.apply(ctx, f)
			if !errors.Is(err, engine.ErrBusy) {
				return err
			}
			waits = map[string]string{"": err.Error()}
		}
		for _, what := range slices.Sorted(maps.Keys(waits)) {
			if told[what] == waits[what] {
				continue
			}
			e := watch.Event{Time: time.Now(), Kind: watch.Waiting, Config: f.Name, Device: what, Text: waits[what]}
			if strings.HasPrefix(what, "/") {
				e.Device, e.Key = "", what
			}
			m.Report(e)
		}
		told = waits
		w.Ready("waiting for a device or a control group")
		w.Alive()
		wait := watch.Again
		if _, busy := waits[""]; busy {
			wait = time.Second
		}
		if w.Heartbeat > 0 {
			wait = min(wait, w.Heartbeat)
		}
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return errors.New("the kernel's notifications have ended")
			}
		case <-time.After(wait):
		}
	}
}

// kept reports whether lanes of the file are applied already and only control groups are missing.
// The keeper can keep those lanes while it waits for the groups.
func (m *Machine) kept(waits map[string]string) (bool, error) {
	for what := range waits {
		if !strings.HasPrefix(what, "/") {
			return false, nil
		}
	}
	if len(waits) == 0 {
		return false, nil
	}
	js, err := m.Journals()
	return len(js) > 0, err
}

// awaited returns the devices and control groups of f that are missing or not ready. Each value is
// the reason.
func (m *Machine) awaited(ctx context.Context, f *engine.File) (map[string]string, error) {
	devices, groups := f.Devices(), engine.Groups(f.Intent)
	displaced, err := m.displaced()
	if err != nil {
		return nil, err
	}
	for range lookAgain {
		st, known, err := m.Engine.Observe(ctx, devices, groups)
		if err != nil {
			return nil, err
		}
		of := interestSource{state: st, devices: devices, known: known, groups: groups}
		grown, err := m.Source.Watch(m.names.interest(of))
		if err != nil {
			return nil, err
		}
		if grown {
			continue
		}
		out := map[string]string{}
		maps.Copy(out, waits(devices, st, displaced))
		for _, g := range groups {
			if !st.Cgroups.Exists(g) {
				out[g] = "there is no such control group: the lanes are made as soon as it exists"
			}
		}
		return out, nil
	}
	return nil, errFast
}

// displaced returns the kept devices that now have another name or place. Each value is a text
// about it.
func (m *Machine) displaced() (map[string]string, error) {
	js, err := m.Journals()
	out := map[string]string{}
	for _, j := range js {
		more, derr := engine.Displaced(j.Head(), false)
		err = errors.Join(err, derr)
		maps.Copy(out, more)
	}
	return out, err
}

// apply does what niclane apply does, with one difference: if another process is applying, it does
// not wait but returns engine.ErrBusy.
func (m *Machine) apply(ctx context.Context, f *engine.File) error {
	release, err := m.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	made, err := m.Engine.Make(ctx, f)
	if err != nil {
		return err
	}
	e := watch.Event{Time: time.Now(), Kind: watch.Notice, Config: f.Name, Objects: made.Done, After: time.Since(began),
		Text: fmt.Sprintf("applied, %s", steps(len(made.Done)))}
	if len(made.Done) == 0 {
		e.Text = "nothing to do: the machine is as the file says"
	}
	m.Report(e)
	for _, w := range made.Warnings {
		m.Report(watch.Event{Time: time.Now(), Kind: watch.Notice, Config: f.Name, Text: w})
	}
	return nil
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// SPDX-License-Identifier: Apache-2.0

package card

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// foresee works out the state that a plan's steps leave when they succeed, while they are
// journalled and made: that takes longer with each pod, and nothing that is done
// meanwhile depends on it. leaves waits for it; who does not need it may leave it. It is nil
// for a plan of which the steps do not say all that they leave.
func foresee(p planned) (leaves func() *device.State) {
	if len(p.Devices) == 0 || slices.ContainsFunc(p.Steps, remakes) {
		return nil
	}
	if p.some != nil { // the state without members stays
		return func() *device.State { return nil }
	}
	made := make(chan *device.State, 1)
	changes := make([]device.Change, len(p.Steps))
	for i, s := range p.Steps {
		changes[i] = device.Change{Old: s.Old, New: s.New}
	}
	go func() { made <- p.state.After(changes) }()
	return func() *device.State { return <-made }
}

// save keeps what there is beside the members right after an apply where niclane
// verify looks for it. If the devices are not known, they are observed.
func (c *Card) save(ctx context.Context, a *asked, p *plan.Plan, j *journal.Journal) (err error) {
	if len(p.Devices) == 0 {
		return nil
	}
	var st *device.State
	if c.known == nil {
		if st, err = observe.Observe(ctx, observe.Options{Devices: p.Devices, RunDir: c.RunDir, NoProbes: true}); err != nil {
			return err
		}
	}
	path, err := c.appliedPath(p)
	if err != nil || c.upToDate(a, p, path) {
		return err
	}
	c.saved = saved{}
	if st == nil {
		st = c.known.whole()
	}
	st = without(st, j.Records())
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	c.saved = saved{path: path, state: st}
	return unix.Stat(path, &c.saved.as)
}

// upToDate reports whether the file at path has what verify compares with after p too.
// Members that come and go leave it as it is: what there is to compare of them the
// journal says. Without lanes before p, it is of some that have gone.
func (c *Card) upToDate(a *asked, p *plan.Plan, path string) bool {
	return len(a.mine) == 1 && members(p.Steps) && c.saved.now(path) != nil
}

// without is a state as it would be without the members that niclane has put there: what
// is found of one that has gone is somebody else's.
func without(st *device.State, records []journal.Record) *device.State {
	var back []device.Change
	for _, r := range records {
		if r.Last != nil && member(r.Last) {
			back = append(back, device.Change{Old: r.Last, New: r.Original})
		}
	}
	return st.After(back)
}

// saved is the state of a file that is as it was written.
type saved struct {
	path  string
	as    unix.Stat_t
	state *device.State
}

// now returns the state, nil if the file is another or has changed.
func (s *saved) now(path string) *device.State {
	var is unix.Stat_t
	if s.state == nil || s.path != path || unix.Stat(path, &is) != nil || is.Ino != s.as.Ino || is.Size != s.as.Size || is.Mtim != s.as.Mtim || is.Ctim != s.as.Ctim {
		return nil
	}
	return s.state
}

// remakes reports whether a step has the driver make its queues anew.
func remakes(s plan.Step) bool {
	switch s.Object().(type) {
	case device.Channels, device.Feature, device.Ring, device.XDP:
		return true
	}
	return false
}

// appliedPath is cmd/niclane's: one file per first device and network namespace.
func (c *Card) appliedPath(p *plan.Plan) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", err
	}
	return filepath.Join(c.RunDir, fmt.Sprintf("applied-%d-%s.json", st.Ino, p.Devices[0])), nil
}

// applied returns the state right after apply, nil if it is not known. It is not to
// be changed.
func (c *Card) applied(p *plan.Plan) *device.State {
	if len(p.Devices) == 0 {
		return nil
	}
	path, err := c.appliedPath(p)
	if err != nil {
		return nil
	}
	if st := c.saved.now(path); st != nil {
		return st
	}
	var as unix.Stat_t
	st := new(device.State)
	if unix.Stat(path, &as) != nil { // before it is read: one written meanwhile is another
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, st) != nil || st.Schema != device.Schema {
		return nil
	}
	c.saved = saved{path: path, as: as, state: st}
	return st
}

// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/niclane/niclane/internal/testing/fakekernel"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

// filters returns a card with two traffic classes in addition to the default one, and a plan with
// n flower filters.
func filters(n int) (k *fakekernel.Kernel, p *plan.Plan) {
	k = fakekernel.New(&device.State{Devices: []device.Device{{
		Name:     "d0",
		Features: map[string]device.Setting{"hw-tc-offload": {On: true}},
	}}})
	k.Put(device.Qdisc{Dev: "d0", Parent: "root", Type: "mqprio", Handle: "1:", Mode: device.ModeChannel,
		Queues: "2@0 2@2 2@4"})
	k.Put(clsact)
	p = &plan.Plan{Devices: []string{"d0"}}
	for i := range n {
		p.Steps = append(p.Steps, plan.Step{New: device.Flower{Dev: "d0", Class: 1,
			Match: device.Match{Family: 4, Protocol: "tcp", LocalPort: uint16(80 + i)}}})
	}
	return k, p
}

// TestBetweenRollbacks kills a rollback, or the undo of an apply, in the middle of a group of
// filters. Before the next rollback, another program makes filters for the same packets. The next
// rollback must remove niclane's filters and leave those of the other program.
func TestBetweenRollbacks(t *testing.T) {
	const n = 3
	for name, theirs := range map[string]func(device.Flower) device.Flower{
		"at another preference": func(f device.Flower) device.Flower { f.Pref = 49152; return f },
		"to another class":      func(f device.Flower) device.Flower { f.Class = 2; return f },
		"as niclane's own":      func(f device.Flower) device.Flower { return f },
	} {
		for back, first := range map[string]func(*fakekernel.Kernel, *journal.Journal){
			"rollback": func(k *fakekernel.Kernel, j *journal.Journal) {
				_, _ = apply.Rollback(context.Background(), k, j, here, apply.Options{})
			},
			"undo": func(k *fakekernel.Kernel, j *journal.Journal) { _, _ = apply.Undo(k, j, apply.Options{}) },
		} {
			for side, when := range sides {
				for kill := range n {
					t.Run(fmt.Sprintf("%s/%s/%s write %d", name, back, side, kill), func(t *testing.T) {
						k, p := filters(n)
						j := applied(t, k, p, nil)
						k.Inject(fakekernel.Fault{Write: kill, When: when, Kill: true})
						if !killable(func() { first(k, j) }) {
							t.Fatal("it was not killed")
						}
						k.Calm()
						want := map[string]bool{} // objects of another program
						for i := n - 1; i >= 0; i-- {
							f := p.Steps[i].New.(device.Flower)
							if k.Objects()[f.Key()] != nil {
								continue
							}
							// If the removal was made but not reported before the kill, niclane cannot distinguish an
							// equal filter of another program from its own.
							if silent := side == "after" && len(want) == kill; !silent || theirs(f) != f {
								k.Put(theirs(f))
								want[f.Key()] = true
							}
						}
						j = reread(t, j)
						rollBack(t, k, j)
						for _, s := range p.Steps {
							if got := k.Objects()[s.Key()]; (got != nil) != want[s.Key()] {
								t.Errorf("%s: found %v, is somebody else's: %v", s.Key(), got, want[s.Key()])
							}
						}
						if got := j.Records(); len(got) != 0 {
							t.Errorf("still owned: %+v", got)
						}
					})
				}
			}
		}
	}
}

// A stubborn kernel reports the removal of a filter, but does not remove it.
type stubborn struct{ *fakekernel.Kernel }

func (s stubborn) Write(old, next device.Object) error {
	err := s.Kernel.Write(old, next)
	if next == nil && err == nil {
		s.Put(old)
	}
	return err
}

// TestRemovedInWords: the kernel reports that it has removed an object, but the object is still
// there. The object must still be niclane's.
func TestRemovedInWords(t *testing.T) {
	k, p := filters(2)
	j := applied(t, k, p, nil)
	_, err := apply.Rollback(context.Background(), stubborn{k}, j, here, apply.Options{})
	var left apply.LeftError
	if !errors.As(err, &left) || len(left) != 2 {
		t.Errorf("rollback: %v, want both filters left", err)
	}
	j = reread(t, j)
	if got := j.Records(); len(got) != 2 {
		t.Errorf("owned: %+v, want both", got)
	}
	rollBack(t, k, j)
	if k.Objects()[p.Steps[0].Key()] != nil || len(j.Records()) != 0 {
		t.Errorf("left:\n%s\nowned: %+v", k, j.Records())
	}
}

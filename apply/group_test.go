// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/apply"
	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/fakekernel"
	"github.com/niclane/niclane/journal"
	"github.com/niclane/niclane/plan"
)

func knobs(values ...string) []device.File {
	var out []device.File
	for i, v := range values {
		out = append(out, device.File{Path: "/proc/sys/net/core/knob" + string(rune('a'+i)), Format: device.FileText, Value: v})
	}
	return out
}

// threeKnobs is a kernel with three files and the plan that changes them, which
// are looked at together.
func threeKnobs() (*fakekernel.Kernel, *plan.Plan) {
	st := &device.State{Files: map[string]device.File{}, Devices: []device.Device{{Name: "d0"}}}
	p := &plan.Plan{Devices: []string{"d0"}}
	now := knobs("1", "2", "3")
	for i, want := range knobs("10", "20", "30") {
		st.Files[now[i].Path] = now[i]
		p.Steps = append(p.Steps, plan.Step{Old: now[i], New: want})
	}
	return fakekernel.New(st), p
}

// A rounding kernel notes which objects are read together, and rounds down to
// tens what others write as 20 and 30.
type rounding struct {
	*fakekernel.Kernel
	together [][]string
}

func (r *rounding) ReadMany(objects []device.Object) ([]device.Object, error) {
	var keys []string
	out := make([]device.Object, len(objects))
	for i, o := range objects {
		keys = append(keys, o.Key())
		var err error
		if out[i], err = r.Read(o); err != nil {
			return nil, err
		}
	}
	r.together = append(r.together, keys)
	return out, nil
}

func (r *rounding) Write(old, new device.Object) error {
	if f, ok := new.(device.File); ok && (f.Value == "20" || f.Value == "30") {
		f.Value = "19"
		new = f
	}
	return r.Kernel.Write(old, new)
}

func TestGroupIsReadBack(t *testing.T) {
	k, p := threeKnobs()
	before := k.String()
	r := &rounding{Kernel: k}
	report, err := apply.Run(context.Background(), r, p, newJournal(p, nil), apply.Options{})
	var mismatch *apply.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Key != p.Steps[1].Key() {
		t.Errorf("error %v, want the second file's", err)
	}
	if len(report.Left) > 0 {
		t.Errorf("left %+v: niclane wrote them itself", report.Left)
	}
	wantState(t, "afterwards", before, k)
	keys := []string{p.Steps[0].Key(), p.Steps[1].Key(), p.Steps[2].Key()}
	if diff := cmp.Diff([][]string{keys, keys}, r.together[:min(2, len(r.together))]); diff != "" {
		t.Errorf("read together (-want +got):\n%s", diff)
	}
}

// What a group wrote before a kill is known to be written: a value that
// somebody else gave it since is theirs.
func TestForeignChangeAfterAKilledGroup(t *testing.T) {
	k, p := threeKnobs()
	j := newJournal(p, nil)
	k.Inject(fakekernel.Fault{Write: 2, When: fakekernel.Before, Kill: true})
	if !killable(func() { _, _ = apply.Run(context.Background(), k, p, j, apply.Options{}) }) {
		t.Fatal("not killed")
	}
	k.Calm()
	theirs := knobs("99")[0]
	k.Put(theirs)
	report, err := apply.Rollback(context.Background(), k, reread(t, j), here, apply.Options{})
	var left apply.LeftError
	if !errors.As(err, &left) || len(left) != 1 || left[0].Key != theirs.Key() || !left[0].Foreign {
		t.Fatalf("error %v, want the first file left as somebody else's", err)
	}
	want := []string{p.Steps[1].Key(), p.Steps[2].Key()}
	slices.Sort(report.Undone)
	if diff := cmp.Diff(want, report.Undone); diff != "" {
		t.Errorf("undone (-want +got):\n%s", diff)
	}
}

// The kernel's many-reader must not tell what its reader does not.
func TestSystemReadMany(t *testing.T) {
	onSystem(t, func(t *testing.T, lanes string) {
		p := planHere(t, lanes)
		k, err := apply.NewKernel()
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		compare := func(when string) {
			t.Helper()
			byKind := map[string][]device.Object{}
			for _, s := range p.Steps {
				byKind[s.Object().Kind()] = append(byKind[s.Object().Kind()], s.Object())
			}
			for kind, objects := range byKind {
				many, err := k.ReadMany(objects)
				if err != nil || len(many) != len(objects) {
					t.Fatalf("%s, %s: %d values of %d objects, %v", when, kind, len(many), len(objects), err)
				}
				for i, o := range objects {
					one, err := k.Read(o)
					if err != nil {
						t.Fatal(err)
					}
					if !device.Equal(one, many[i]) {
						t.Errorf("%s, %s: %v alone, %v among many", when, o.Key(), one, many[i])
					}
				}
			}
		}
		compare("before")
		host, err := journal.Here()
		if err != nil {
			t.Fatal(err)
		}
		j := journal.New(journal.Head{Host: host, Config: testConfig, Generation: 1, Devices: p.Devices, Plan: p})
		k.Prepare(p.Steps)
		if _, err := apply.Run(context.Background(), k, p, j, apply.Options{}); err != nil {
			t.Fatal(err)
		}
		compare("after")
		if _, err := apply.Undo(k, j, apply.Options{}); err != nil {
			t.Error(err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

var update = flag.Bool("update", false, "rewrite the goldens; read the diff")

// fixture reads a State from a file with the output of `niclane probe --json`.
func fixture(t testing.TB, name string) *device.State {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join("../device/testdata", name+".json"))
	}
	if err != nil {
		t.Fatal(err)
	}
	st := &device.State{}
	if err := json.Unmarshal(b, st); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if st.Schema != device.Schema {
		t.Fatalf("%s: schema %d, want %d", name, st.Schema, device.Schema)
	}
	return st
}

// file returns the content of a file in an archive, "" if the archive does not have it.
func file(ar *txtar.Archive, name string) string {
	for _, f := range ar.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// TestGolden makes a plan for each archive in testdata and compares it. The first word of the
// archive's comment names a fixture. device.patch is JSON that is merged over the fixture.
// before.yaml is a lanes file that was applied before, meanwhile.patch changes by other programs
// after that. The expected results for lanes.yaml are the files summary, plan and rollback, or
// errors.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := golden(t, ar)
			if *update {
				kept := ar.Files[:0]
				for _, f := range ar.Files {
					if slices.Contains([]string{"device.patch", "before.yaml", "meanwhile.patch", "lanes.yaml"},
						f.Name) {
						kept = append(kept, f)
					}
				}
				ar.Files = append(kept, got...)
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, f := range got {
				if diff := cmp.Diff(file(ar, f.Name), string(f.Data)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", f.Name, diff)
				}
			}
			for _, f := range ar.Files {
				if last := got[len(got)-1].Name; (f.Name == "errors" || f.Name == "rollback") && f.Name != last {
					t.Errorf("%s expected, got %s", f.Name, last)
				}
			}
		})
	}
}

func golden(t *testing.T, ar *txtar.Archive) []txtar.File {
	t.Helper()
	name, _, _ := strings.Cut(string(ar.Comment), ":")
	st := fixture(t, name)
	if patch := file(ar, "device.patch"); patch != "" {
		merge(t, st, patch)
	}
	start := st.Clone()
	var owned plan.Owned
	if before := file(ar, "before.yaml"); before != "" {
		p, err := makePlan(t, "before.yaml", before, st, plan.Owned{})
		if err != nil {
			t.Fatalf("before.yaml: %v", err)
		}
		owned = run(st, owned, p.Steps)
	}
	if patch := file(ar, "meanwhile.patch"); patch != "" {
		merge(t, st, patch)
	}
	p, err := makePlan(t, "lanes.yaml", file(ar, "lanes.yaml"), st, owned)
	if err != nil {
		return []txtar.File{{Name: "errors", Data: []byte(err.Error() + "\n")}}
	}
	checkInvariants(t, ar, start, st, owned, p)
	var summary, text, undo bytes.Buffer
	if err := plan.WriteSummary(&summary, p); err != nil {
		t.Fatal(err)
	}
	plan.WriteText(&text, p.Steps)
	for _, n := range p.Notes {
		fmt.Fprintf(&text, "note: %s\n", n)
	}
	after := st.Clone()
	owned = run(after, owned, p.Steps)
	plan.WriteText(&undo, plan.Undo(after, owned))
	return []txtar.File{{Name: "summary", Data: summary.Bytes()}, {Name: "plan", Data: text.Bytes()},
		{Name: "rollback", Data: undo.Bytes()}}
}

// TestProbe compares probe's output for each fixture with testdata/NAME.probe.
func TestProbe(t *testing.T) {
	own, _ := filepath.Glob("testdata/*.json")
	paths, _ := filepath.Glob("../device/testdata/*.json")
	if len(own) == 0 || len(paths) == 0 {
		t.Fatal("no fixtures")
	}
	for _, path := range append(own, paths...) {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			st := fixture(t, name)
			var got bytes.Buffer
			for i := range st.Devices {
				fmt.Fprintf(&got, "%s on Linux %s\n", st.Devices[i].Name, st.Kernel.Release)
				plan.WriteChoices(&got, plan.Choose(st, &st.Devices[i], nil))
			}
			wantPath := filepath.Join("testdata", name+".probe")
			if *update {
				if err := os.WriteFile(wantPath, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(wantPath)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", wantPath, diff)
			}
		})
	}
}

// makePlan plans a lanes file. Its error has file and line, as the command prints it.
func makePlan(t *testing.T, name, text string, st *device.State, owned plan.Owned) (*plan.Plan, error) {
	t.Helper()
	f, err := config.ParseFile(name, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p, err := plan.Make(f.Intent, st, owned)
	var es plan.Errors
	if errors.As(err, &es) {
		var lines []string
		for _, e := range es {
			file, line := f.Locate(e.Path)
			lines = append(lines, fmt.Sprintf("%s:%d: %s", file, line, e))
		}
		return nil, errors.New(strings.Join(lines, "\n"))
	}
	return p, err
}

// merge merges JSON into a state: it merges objects key by key and replaces all other values.
func merge(t *testing.T, st *device.State, patch string) {
	t.Helper()
	b, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var base, over any
	if err := json.Unmarshal(b, &base); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(patch), &over); err != nil {
		t.Fatalf("device.patch: %v", err)
	}
	b, err = json.Marshal(mergeValue(base, over))
	if err != nil {
		t.Fatal(err)
	}
	*st = device.State{}
	if err := json.Unmarshal(b, st); err != nil {
		t.Fatalf("device.patch: %v", err)
	}
}

// mergeValue merges maps key by key. If both values are lists of maps with the same length, it
// merges them element by element, because a State's devices are a list.
func mergeValue(base, over any) any {
	switch o := over.(type) {
	case map[string]any:
		b, ok := base.(map[string]any)
		if !ok {
			return over
		}
		for k, v := range o {
			b[k] = mergeValue(b[k], v)
		}
		return b
	case []any:
		b, ok := base.([]any)
		if !ok || len(b) != len(o) {
			return over
		}
		for i := range o {
			b[i] = mergeValue(b[i], o[i])
		}
		return b
	}
	return over
}

// run applies the steps to st and returns the objects that niclane then owns.
func run(st *device.State, owned plan.Owned, steps []plan.Step) plan.Owned {
	owned.Records = slices.Clone(owned.Records)
	at := map[string]int{}
	for i, r := range owned.Records {
		at[r.Key()] = i
	}
	for _, s := range steps {
		st.Put(s.Old, s.New)
		if i, ok := at[s.Key()]; ok {
			owned.Records[i].Last = s.New
			continue
		}
		at[s.Key()] = len(owned.Records)
		owned.Records = append(owned.Records, plan.Record{Original: s.Old, Last: s.New, Part: s.Part, Cause: s.Cause})
	}
	owned.Records = slices.DeleteFunc(owned.Records,
		func(r plan.Record) bool { return device.Equal(r.Original, r.Last) })
	return owned
}

// checkInvariants checks, for one golden, the rules that every plan must obey.
func checkInvariants(t *testing.T, ar *txtar.Archive, start, st *device.State, owned plan.Owned, p *plan.Plan) {
	t.Helper()
	lanes := file(ar, "lanes.yaml")
	again, err := makePlan(t, "lanes.yaml", lanes, st, owned)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(mustJSON(t, p), mustJSON(t, again)); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	var back plan.Plan
	if err := json.Unmarshal(mustJSON(t, p), &back); err != nil {
		t.Errorf("plan does not read back: %v", err)
	} else if diff := cmp.Diff(p.Steps, back.Steps); diff != "" {
		t.Errorf("plan reads back differently (-want +got):\n%s", diff)
	}
	after := st.Clone()
	ownedAfter := run(after, owned, p.Steps)
	settled, err := makePlan(t, "lanes.yaml", lanes, after, ownedAfter)
	if err != nil {
		t.Errorf("planning against the state reached: %v", err)
	} else if len(settled.Steps) > 0 {
		t.Errorf("planning against the state reached gives %d steps, first %s", len(settled.Steps),
			mustJSON(t, settled.Steps[0]))
	}
	for _, s := range plan.Undo(after, ownedAfter) {
		after.Put(s.Old, s.New)
	}
	if diff := cmp.Diff(start.Objects(), after.Objects()); diff != "" {
		t.Errorf("rollback does not lead back (-start +after):\n%s", diff)
	}
	for _, s := range p.Steps {
		if s.Old != nil && s.New != nil && s.Old.Key() != s.New.Key() {
			t.Errorf("step changes %s into %s", s.Old.Key(), s.New.Key())
		}
		if s.Reason == "" || s.Cause == "" || s.Part == "" {
			t.Errorf("step without reason, cause or part: %s", mustJSON(t, s))
		}
		if inv := s.Inverse().Inverse(); !cmp.Equal(inv, s) {
			t.Errorf("inverse of inverse of %s differs", s.Key())
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func entry(port uint16, queues ...int) device.Object {
	return device.FilterEntry{
		Filter: "filter/eth1/egress/1/1", Priority: "1:10", Queues: queues,
		Match: device.Match{Family: 4, Protocol: "tcp", Local: "10.0.0.1/32", LocalPort: port},
	}
}

// members returns n steps, each of which makes the entry of one member.
func members(n int) []plan.Step {
	var out []plan.Step
	for i := range n {
		out = append(out, step(nil, entry(uint16(1000+i), 3)))
	}
	return out
}

// resum takes a journal that was changed by hand, and corrects the size and the SHA-256 of its
// head.
func resum(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	head := rest[:strings.Index(rest, "\nbegin ")+1]
	return fmt.Sprintf("niclane-journal 2 %d %x\n%s", len(head), sha256.Sum256([]byte(head)), rest)
}

// TestLines changes each field of records and steps in turn. After encoding and decoding, the
// changed value must be the same.
func TestLines(t *testing.T) {
	match := device.Match{Family: 4, Protocol: "tcp", LocalPort: 1}
	other := device.Match{Family: 6, Protocol: "udp", VLAN: 2, Local: "fd00::1/128", LocalPort: 3, Remote: "fd00::/64",
		RemotePort: 4, LocalPortBits: 8, RemotePortBits: 15}
	for _, o := range []device.Object{
		device.FilterEntry{Filter: "f", Match: match, Priority: "1:10", Queues: []int{1}},
		device.XDPEntry{Dev: "eth1", Match: match, Lane: 1},
		device.Rule{Dev: "eth1", Match: match, Context: 1},
	} {
		objects := []device.Object{o, set(o, "Match", other)}
		for _, odd := range []string{"", "4", "tcp,port=7", "a b", "a\nb", "tcp4"} {
			m := match
			m.Protocol = odd
			objects = append(objects, o, set(o, "Match", m))
			m = match
			m.Local = odd
			objects = append(objects, o, set(o, "Match", m))
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(o)) {
			if f.Name != "Match" {
				objects = append(objects, o, set(o, f.Name, another(t, reflect.ValueOf(o).FieldByIndex(f.Index))))
			}
		}
		first := plan.Step{New: o, Part: device.PartSteering, Reason: "r", Cause: "lanes.a"}
		changes := []plan.Step{first}
		record := journal.Record{Record: plan.Record{Last: o, Part: device.PartSteering, Cause: "lanes.a"}}
		records := []journal.Record{record}
		for _, x := range objects {
			s, r := first, record
			s.New, r.Last = x, x
			changes, records = append(changes, s), append(records, r)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[plan.Step]()) {
			s := first
			switch f.Name {
			case "Old":
				s.Old = o
			case "New":
				s.Old, s.New = o, nil
			default:
				v := reflect.ValueOf(&s).Elem().FieldByIndex(f.Index)
				v.Set(reflect.ValueOf(another(t, v)))
			}
			changes = append(changes, first, s)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[journal.Record]()) {
			if !f.IsExported() || f.Anonymous {
				continue
			}
			r := record
			switch f.Name {
			case "Original":
				r.Original = o
			case "Next":
				r.Next = o
			case "Last":
				r.Original, r.Last = o, nil
			default:
				v := reflect.ValueOf(&r).Elem().FieldByIndex(f.Index)
				v.Set(reflect.ValueOf(another(t, v)))
			}
			records = append(records, record, r)
		}
		h := head(&plan.Plan{Devices: []string{"eth1"}, Steps: changes})
		h.Before = records
		j := decode(t, encode(t, journal.New(h)))
		same(t, o.Kind()+": steps (-want +got)", changes, j.Head().Plan.Steps)
		same(t, o.Kind()+": records (-want +got)", records, j.Head().Before)
	}
}

// set returns o with a new value in one field.
func set(o device.Object, field string, value any) device.Object {
	v := reflect.New(reflect.TypeOf(o)).Elem()
	v.Set(reflect.ValueOf(o))
	v.FieldByName(field).Set(reflect.ValueOf(value).Convert(v.FieldByName(field).Type()))
	return v.Interface().(device.Object)
}

// another returns a value of the same type as v, but different.
func another(t *testing.T, v reflect.Value) any {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(v.String() + `"x`)
	case reflect.Int:
		out.SetInt(v.Int() + 1)
	case reflect.Bool:
		out.SetBool(!v.Bool())
	case reflect.Slice:
		out.Set(reflect.ValueOf([]int{4, 5}))
	default:
		t.Fatalf("no other %v is known here", v.Type())
	}
	return out.Interface()
}

// TestLikeLines reads the "like" lines that niclane before 0.2 wrote for objects that differ only
// in match and cause.
func TestLikeLines(t *testing.T) {
	h := head(&plan.Plan{Devices: []string{"eth1"}, Steps: members(3)})
	h.Before = []journal.Record{
		{Record: plan.Record{Last: entry(1), Cause: "lanes.a"}},
		{Record: plan.Record{Last: entry(2), Cause: "lanes.a"}},
		{Record: plan.Record{Last: entry(3), Cause: `lanes."b c"`}},
	}
	h.Plan.Steps[2].Cause = "lanes.b"
	lines := strings.SplitAfter(string(encode(t, journal.New(h))), "\n")
	for kind, causes := range map[string][]string{"record ": {"", ` "lanes.\"b c\""`}, "step ": {"", ` "lanes.b"`}} {
		first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, kind) })
		for i, cause := range causes {
			port := i + 2
			if kind == "step " {
				port = 1001 + i
			}
			lines[first+1+i] = fmt.Sprintf("like tcp4,local=10.0.0.1/32,port=%d%s\n", port, cause)
		}
	}
	j := decode(t, []byte(resum(strings.Join(lines, "")+"begin 0\n")))
	same(t, "steps (-want +got)", h.Plan.Steps, j.Head().Plan.Steps)
	same(t, "records (-want +got)", h.Before, j.Head().Before)
}

// TestLineOfChanged: a record that has changed is encoded again. Its old line is not used.
func TestLineOfChanged(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "s"), here)
	value := []device.Object{nil, class("1:10", 1_000_000), class("1:10", 2_000_000)}
	for i := range 2 {
		j := begin(t, s, head(steps(step(value[i], value[i+1]))))
		record(t, j, "begin 0", "done 0", "end")
		s.Keep(j)
		must.Do(t, j.Close())
		other := begin(t, s, head(steps(step(nil, entry(uint16(i+1))))))
		record(t, other, "begin 0", "done 0", "end")
		s.Keep(other)
		if got := decode(t, read(t, other.Path())).Head().Before[0]; !device.Equal(got.Last, value[i+1]) {
			t.Errorf("written as %+v, is %+v", got.Last, value[i+1])
		}
		must.Do(t, other.Close())
	}
}

// BenchmarkMembers reads and writes the journal of a thousand members, of which the last one is
// new.
func BenchmarkMembers(b *testing.B) {
	s, err := journal.Open(filepath.Join(b.TempDir(), "s"), here)
	must.Do(b, err)
	defer s.Close()
	all := members(1000)
	apply := func(h journal.Head) {
		j, err := s.Begin(h)
		must.Do(b, err)
		defer j.Close()
		for i := range h.Plan.Steps {
			must.Do(b, j.Begin(i))
		}
		must.Do(b, j.End())
	}
	apply(head(steps(all[:999]...)))
	next := head(steps(all[999:]...))
	for b.Loop() {
		apply(next)
	}
}

// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// A Report is the state that was really reached.
type Report struct {
	// Done are the keys of the steps that were made and read back, in order,
	// including those undone again.
	Done []string `json:"done,omitempty"`
	// Undone are the keys of the restored objects, in order.
	Undone []string `json:"undone,omitempty"`
	// Gone are objects that no longer exist, or whose device no longer exists.
	// There is nothing to restore.
	Gone []string `json:"gone,omitempty"`
	// Left are objects that do not have their values from before niclane.
	Left []Left `json:"left,omitempty"`
	// Removed are other programs' objects that Force has removed.
	Removed []string `json:"removed,omitempty"`
	// Objects is the number of objects to restore.
	Objects int `json:"objects,omitempty"`
	// Rebooted says that the journal is of an earlier boot: the kernel state is
	// gone, and there was nothing to undo.
	Rebooted bool `json:"rebooted,omitempty"`
	// Warnings are problems other than with objects, for example a progress
	// line that could not be written.
	Warnings []string `json:"warnings,omitempty"`
}

// A Left is an object that could not, or must not, be restored.
type Left struct {
	Key string `json:"key"`
	Why string `json:"why"`
	// Foreign says that another program changed or uses the object. Force
	// overrides that.
	Foreign bool `json:"foreign,omitempty"`
	// transient says that the next try may restore it.
	transient bool
}

// A LeftError lists the objects that undoing has left.
type LeftError []Left

// Error implements error: one line per object, or per reason if several have the same.
func (e LeftError) Error() string {
	var lines []string
	for i, l := range e {
		same := func(o Left) bool { return o.Why == l.Why }
		if slices.IndexFunc(e, same) != i {
			continue
		}
		var keys []string
		for _, o := range e {
			if same(o) {
				keys = append(keys, o.Key)
			}
		}
		switch n := len(keys); {
		case n == 1:
			lines = append(lines, fmt.Sprintf("%s: left as it is: %s", l.Key, l.Why))
		case n > leftNamed:
			lines = append(lines, fmt.Sprintf("%d objects left as they are: %s (%s, ...)", n, l.Why,
				strings.Join(keys[:leftNamed], ", ")))
		default:
			lines = append(lines, fmt.Sprintf("%d objects left as they are: %s (%s)", n, l.Why,
				strings.Join(keys, ", ")))
		}
	}
	return strings.Join(lines, "\n")
}

// leftNamed is the most objects that are named for one reason.
const leftNamed = 3

// A MismatchError says that an object does not have the expected value.
type MismatchError struct {
	Key         string
	When        string // "read back", "changed since the plan was made"
	Want, Found device.Object
}

// Error implements error.
func (e *MismatchError) Error() string {
	want, found := Texts(e.Want, e.Found)
	return fmt.Sprintf("%s: %s: want %s, found %s", e.Key, e.When, want, found)
}

// Text returns an object's value on one line.
func Text(o device.Object) string {
	if f, ok := o.(device.File); ok {
		return fmt.Sprintf("%q", strings.TrimSpace(f.Value))
	}
	return plan.Brief(o)
}

// Texts returns two values of an object, with the fields that differ if Text does not show
// the difference.
func Texts(a, b device.Object) (string, string) {
	ta, tb := Text(a), Text(b)
	if ta != tb || a == nil || b == nil {
		return ta, tb
	}
	fa, fb := fields(a), fields(b)
	for _, name := range slices.Sorted(maps.Keys(fa)) {
		if fa[name] != fb[name] {
			ta += fmt.Sprintf(", %s %s", name, fa[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fb)) {
		if fa[name] != fb[name] {
			tb += fmt.Sprintf(", %s %s", name, fb[name])
		}
	}
	return ta, tb
}

// fields returns the fields of an object as text.
func fields(o device.Object) map[string]string {
	var raw map[string]json.RawMessage
	if b, err := json.Marshal(o); err != nil || json.Unmarshal(b, &raw) != nil {
		return nil
	}
	out := map[string]string{}
	for name, v := range raw {
		out[name] = strings.Trim(string(v), `"`)
	}
	return out
}

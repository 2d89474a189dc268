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

// A Report describes what an apply or rollback has really done.
type Report struct {
	// Done are the keys of the steps that were made and read back, in order. Steps that were undone
	// later are included.
	Done []string `json:"done,omitempty"`
	// Undone are the keys of the restored objects, in order.
	Undone []string `json:"undone,omitempty"`
	// Gone are objects that no longer exist, alone or with their device. Nothing is left to restore.
	Gone []string `json:"gone,omitempty"`
	// Left are objects that were not restored to their value from before niclane.
	Left []Left `json:"left,omitempty"`
	// Removed are objects of other programs that were removed because of Options.Force.
	Removed []string `json:"removed,omitempty"`
	// Objects is the number of objects to restore, including those in Undone, Gone and Left.
	Objects int `json:"objects,omitempty"`
	// Rebooted says that the journal is from an earlier boot. The kernel state of that boot is gone,
	// so there was nothing to undo.
	Rebooted bool `json:"rebooted,omitempty"`
	// Warnings are problems that are not about an object, such as a line of progress that could not
	// be written.
	Warnings []string `json:"warnings,omitempty"`
}

// A Left is an object that could not be restored, or must not be.
type Left struct {
	Key string `json:"key"`
	Why string `json:"why"`
	// Foreign says that the object was not restored because another program has changed or uses it.
	// With Options.Force, it would be.
	Foreign bool `json:"foreign,omitempty"`
	// transient says that another try may restore the object.
	transient bool
}

// A LeftError lists the objects that an undo did not restore.
type LeftError []Left

// Error implements error. Objects with the same reason share one line.
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

// leftNamed is the largest number of objects that Error names for one reason.
const leftNamed = 3

// A MismatchError says that an object does not have the value that it should have.
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

// Text returns an object's value as one line.
func Text(o device.Object) string {
	if f, ok := o.(device.File); ok {
		return fmt.Sprintf("%q", strings.TrimSpace(f.Value))
	}
	return plan.Brief(o)
}

// Texts returns two values of an object as text. If Text gives the same for both, Texts adds the
// fields that differ.
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

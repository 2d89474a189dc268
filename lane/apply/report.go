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

// A Report is the state really reached.
type Report struct {
	// Done are the keys of the steps that were made and read back, in
	// order, those undone again included.
	Done []string `json:"done,omitempty"`
	// Undone are the keys of the objects that were brought back, in order.
	Undone []string `json:"undone,omitempty"`
	// Gone are objects that could not be brought back because they, or
	// their device, exist no more. Nothing is left of them.
	Gone []string `json:"gone,omitempty"`
	// Left are objects that are not as they were before niclane.
	Left []Left `json:"left,omitempty"`
	// Removed are things of somebody else's that Force has removed.
	Removed []string `json:"removed,omitempty"`
	// Objects is how many objects were to be brought back.
	Objects int `json:"objects,omitempty"`
	// Rebooted says that the journal was of an earlier boot: the kernel
	// state is gone and there was nothing to undo.
	Rebooted bool `json:"rebooted,omitempty"`
	// Warnings are what went wrong beside the objects, as a progress line
	// that could not be written.
	Warnings []string `json:"warnings,omitempty"`
}

// A Left is an object that could not, or must not, be brought back.
type Left struct {
	Key string `json:"key"`
	Why string `json:"why"`
	// Foreign says that somebody else changed or uses the object; Force
	// overrides that.
	Foreign bool `json:"foreign,omitempty"`
	// transient says that it may be brought back at the next try.
	transient bool
}

// A LeftError says what undoing has left.
type LeftError []Left

// Error implements error: one line per object, or for all that are left for one reason.
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

// leftNamed is how many objects are named that are left for one reason.
const leftNamed = 3

// A MismatchError is an object that is not as it should be.
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

// Text gives an object's value on one line.
func Text(o device.Object) string {
	if f, ok := o.(device.File); ok {
		return fmt.Sprintf("%q", strings.TrimSpace(f.Value))
	}
	return plan.Brief(o)
}

// Texts gives two values of an object, with what differs where Text does not show that.
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

// fields are an object's, as words.
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

// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		`{"a":[]}`:  nil,
		`{"a":[1]}`: {"1"},
		` { "x" : {"a":[7]}, "a" : [ {"b":"]\\\""} , [1,2] , "," , null ] , "y":1 } `: {`{"b":"]\\\""}`, "[1,2]", `","`,
			"null "},
	} {
		rest, got, ok := split([]byte(text), "a")
		var elements []string
		for _, e := range got {
			elements = append(elements, string(e))
		}
		if d := cmp.Diff(want, elements); !ok || d != "" {
			t.Errorf("%s: %v, -want +got\n%s", text, ok, d)
		}
		if !json.Valid(rest) {
			t.Errorf("%s: the rest is %s", text, rest)
		}
	}
	for _, text := range []string{``, `[`, `{`, `{}`, `{"a`, `{"a"`, `{"a":`, `{"a":1}`, `{"a":[`, `{"a":[1`,
		`{"a":[1,`, `{"a":[{]`, `{"b":[1]}`, `{"b":1 "a":[1]}`, `{"a\\`, `"a":[1]`} {
		if _, _, ok := split([]byte(text), "a"); ok {
			t.Errorf("%s: no error", text)
		}
	}
}

// FuzzSplit compares split with package json. If json can read b, split must find the same
// elements. If json cannot, split must fail or return a part that is invalid JSON.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":"\\"},"]"],"c":2}`, `{"a":[1 2]}`, `{"a":[1,]}`, `{"a":[[}]}`,
		`{"a":[],"a":[3]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, elements, ok := split(b, "a")
		if !ok {
			return
		}
		valid := json.Valid(rest)
		for _, e := range elements {
			valid = valid && json.Valid(e)
		}
		if valid != json.Valid(b) {
			t.Fatalf("%q: parts valid: %v", b, valid)
		}
		if !valid || bytes.Contains(b, []byte(`\u`)) { // the name may be written with \u, which split does not decode
			return
		}
		whole := first(t, b)
		if len(whole) != len(elements) {
			t.Fatalf("%q: %d elements, want %d", b, len(elements), len(whole))
		}
		for i, e := range elements {
			if want := string(whole[i]); string(bytes.TrimSpace(e)) != want {
				t.Errorf("%q: element %d is %q, want %q", b, i, e, want)
			}
		}
	})
}

// first returns the elements of the first member "a" that is an array, as package json reads them.
func first(t *testing.T, b []byte) (all []json.RawMessage) {
	dec := json.NewDecoder(bytes.NewReader(b))
	_, err := dec.Token()
	for err == nil && dec.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = dec.Token(); err == nil {
			err = dec.Decode(&value)
		}
		if key == "a" && bytes.HasPrefix(value, []byte("[")) {
			err = json.Unmarshal(value, &all)
			break
		}
	}
	if err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return all
}

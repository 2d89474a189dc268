// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// An Object is one thing in the kernel (or on a card) that a plan can write:
// its identity (Key) and its value (everything else). Objects are plain data.
// Equal says whether two values of the same key mean the same to the kernel.
type Object interface {
	// Kind is the type's name in JSON: "qdisc", "file", "rule", ...
	Kind() string
	// Key identifies the object within one network namespace and boot. It
	// contains no identifier that the kernel assigns.
	Key() string
	// Brief returns the value in a few words, for a line "old → new".
	Brief() string
	// commands returns Change.Commands for a change of the object.
	commands(c Change) []string
}

// MarshalObject encodes o as {"kind": ..., "value": {...}}; nil is null.
func MarshalObject(o Object) ([]byte, error) {
	if o == nil {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Kind  string `json:"kind"`
		Value Object `json:"value"`
	}{o.Kind(), o})
}

// UnmarshalObject decodes the output of MarshalObject. An unknown kind, which a
// newer niclane may have written, is an error.
func UnmarshalObject(b []byte) (Object, error) {
	// Fast path for text as MarshalObject writes it: only the value is parsed. A journal of a
	// thousand members has thousands of objects.
	if rest, ok := bytes.CutPrefix(b, []byte(`{"kind":"`)); ok {
		kind, value, ok := bytes.Cut(rest, []byte(`","value":`))
		value, closed := bytes.CutSuffix(value, []byte("}"))
		if ok && closed {
			if o, err := unmarshalValue(string(kind), value); err == nil {
				return o, nil
			}
		}
	}
	var env *struct {
		Kind  string          `json:"kind"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(b, &env); err != nil {
		return nil, err
	}
	if env == nil {
		return nil, nil
	}
	return unmarshalValue(env.Kind, env.Value)
}

func unmarshalValue(kind string, value []byte) (Object, error) {
	if k, ok := kinds[kind]; ok {
		return k.decode(value)
	}
	return nil, fmt.Errorf("object kind %q: not known to this version of niclane", kind)
}

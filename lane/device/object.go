// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"fmt"
)

// An Object is one thing in the kernel (or on a card) that a plan can write:
// its identity (Key) and its value (everything else). Objects are plain
// comparable-by-meaning data; Equal says whether two values of the same key
// mean the same to the kernel.
type Object interface {
	// Kind is the type's name in JSON: "qdisc", "file", "rule", ...
	Kind() string
	// Key identifies the object within one network namespace and boot.
	// It holds no identifier that the kernel assigns.
	Key() string
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

// UnmarshalObject decodes what MarshalObject wrote. An unknown kind, as a
// newer niclane may have written, is an error.
func UnmarshalObject(b []byte) (Object, error) {
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
	switch env.Kind {
	case File{}.Kind():
		return decode[File](env.Value)
	case Qdisc{}.Kind():
		return decode[Qdisc](env.Value)
	case Class{}.Kind():
		return decode[Class](env.Value)
	case Flower{}.Kind():
		return decode[Flower](env.Value)
	case Filter{}.Kind():
		return decode[Filter](env.Value)
	case FilterEntry{}.Kind():
		return decode[FilterEntry](env.Value)
	case FilterDefault{}.Kind():
		return decode[FilterDefault](env.Value)
	case Shaper{}.Kind():
		return decode[Shaper](env.Value)
	case CgroupPriority{}.Kind():
		return decode[CgroupPriority](env.Value)
	case CgroupClass{}.Kind():
		return decode[CgroupClass](env.Value)
	case RSSTable{}.Kind():
		return decode[RSSTable](env.Value)
	case Rule{}.Kind():
		return decode[Rule](env.Value)
	case NAPIConfig{}.Kind():
		return decode[NAPIConfig](env.Value)
	case Thread{}.Kind():
		return decode[Thread](env.Value)
	case Poller{}.Kind():
		return decode[Poller](env.Value)
	case Channels{}.Kind():
		return decode[Channels](env.Value)
	case Coalesce{}.Kind():
		return decode[Coalesce](env.Value)
	case Affinity{}.Kind():
		return decode[Affinity](env.Value)
	case DriverParam{}.Kind():
		return decode[DriverParam](env.Value)
	case Ring{}.Kind():
		return decode[Ring](env.Value)
	case Feature{}.Kind():
		return decode[Feature](env.Value)
	case XDP{}.Kind():
		return decode[XDP](env.Value)
	case CPUQueue{}.Kind():
		return decode[CPUQueue](env.Value)
	case CPUThread{}.Kind():
		return decode[CPUThread](env.Value)
	case CPULane{}.Kind():
		return decode[CPULane](env.Value)
	case XDPEntry{}.Kind():
		return decode[XDPEntry](env.Value)
	}
	return nil, fmt.Errorf("object kind %q: not known to this version of niclane", env.Kind)
}

func decode[T Object](b []byte) (Object, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return v, nil
}

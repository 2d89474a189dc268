// SPDX-License-Identifier: Apache-2.0

package device

import (
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// Equal reports whether a and b mean the same to the kernel. Two absent
// objects are equal; an object differs from absence.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	switch a := a.(type) {
	case FilterEntry: // a lane of a thousand members has as many of these two
		b, ok := b.(FilterEntry)
		return ok && a.Filter == b.Filter && a.Match == b.Match && a.Priority == b.Priority && slices.Equal(a.Queues, b.Queues)
	case XDPEntry:
		b, ok := b.(XDPEntry)
		return ok && a == b
	case File:
		b, ok := b.(File)
		return ok && a.Path == b.Path && normalFile(a.Format, a.Value) == normalFile(a.Format, b.Value)
	case Qdisc:
		b, ok := b.(Qdisc)
		return ok && a.asKept() == b.asKept()
	case Class:
		b, ok := b.(Class)
		return ok && a.asKept() == b.asKept()
	case RSSTable:
		// One that nobody has set is the driver's, and follows the channels.
		if b, ok := b.(RSSTable); ok && a.Key() == b.Key() && a.Context == 0 && !a.Configured && !b.Configured {
			return true
		}
	}
	return reflect.DeepEqual(a, b)
}

// normalFile brings a file's value to one spelling per meaning.
func normalFile(f FileFormat, v string) string {
	v = strings.TrimSpace(v)
	switch f {
	case FileCPUMask:
		n, ok := new(big.Int).SetString(strings.ReplaceAll(v, ",", ""), 16)
		if ok {
			return n.Text(16)
		}
	case FileCPUList:
		if ids, err := ParseCPUList(v); err == nil {
			return FormatCPUList(ids)
		}
	}
	return v
}

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
	case Rule:
		b, ok := b.(Rule)
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
		b, ok := b.(RSSTable)
		if !ok || a.Key() != b.Key() || a.Configured != b.Configured {
			return false
		}
		// One that nobody has set is the driver's, and follows the channels.
		return a.Context == 0 && !a.Configured || sameTable(a.Queues, b.Queues)
	}
	return reflect.DeepEqual(a, b)
}

// sameTable reports whether two RSS tables lead the same packets to the same
// queues: one is the other, or repeats it. The size of tables follows the channels
// on some cards (mlx5: en/rqt.c: mlx5e_rqt_size).
func sameTable(a, b []int) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) == 0 || len(b)%len(a) != 0 {
		return len(a) == len(b)
	}
	for ; len(b) > 0; b = b[len(a):] {
		if !slices.Equal(a, b[:len(a)]) {
			return false
		}
	}
	return true
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

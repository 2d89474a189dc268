// SPDX-License-Identifier: Apache-2.0

package device

import (
	"math/big"
	"reflect"
	"strings"
)

// Equal reports whether a and b mean the same to the kernel. Two absent
// objects are equal; an object differs from absence.
func Equal(a, b Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if fa, ok := a.(File); ok {
		fb, ok := b.(File)
		return ok && fa.Path == fb.Path && normalFile(fa.Format, fa.Value) == normalFile(fa.Format, fb.Value)
	}
	if qa, ok := a.(Qdisc); ok {
		qb, ok := b.(Qdisc)
		return ok && qa.asKept() == qb.asKept()
	}
	if ca, ok := a.(Class); ok {
		cb, ok := b.(Class)
		return ok && ca.asKept() == cb.asKept()
	}
	if ta, ok := a.(RSSTable); ok {
		// One that nobody has set is the driver's, and follows the channels.
		if tb, ok := b.(RSSTable); ok && ta.Key() == tb.Key() && ta.Context == 0 && !ta.Configured && !tb.Configured {
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

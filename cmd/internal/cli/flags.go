// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/niclane/niclane/internal/strictyaml"
)

// A value is a command-line option whose value is written as in a lanes file, such as 500mbit. If
// plain is set, the option also accepts a number without a unit, as all versions before v0.2 did.
type value[T any] struct {
	to    *T
	kind  strictyaml.Kind[T]
	text  func(T) string
	name  string
	plain func(uint64) T
}

// Set implements pflag.Value.
func (v *value[T]) Set(text string) error {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil && (v.plain != nil || n == 0) {
		var zero T
		if *v.to = zero; v.plain != nil {
			*v.to = v.plain(n)
		}
		return nil
	}
	read, err := v.kind.Parse(text)
	if err == nil {
		*v.to = read
	}
	return err
}

// String implements pflag.Value.
func (v *value[T]) String() string {
	if v.to == nil {
		return ""
	}
	return v.text(*v.to)
}

// Type implements pflag.Value. It returns the word for the value in the help: "time", "rate" or
// "size".
func (v *value[T]) Type() string { return v.name }

// TimeVar adds an option for a time: 500ms, 5min. The default is *to.
func TimeVar(f *pflag.FlagSet, to *time.Duration, name, usage string) {
	kind := strictyaml.Mapped(strictyaml.Duration(0, 366*24*time.Hour),
		func(ns int64) time.Duration { return time.Duration(ns) })
	f.Var(&value[time.Duration]{to, kind, func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return strictyaml.DurationText(int64(d))
	}, "time", nil}, name, usage)
}

// RateVar adds an option for a rate in bit/s: 500mbit.
func RateVar(f *pflag.FlagSet, to *uint64, name, usage string) {
	f.Var(&value[uint64]{to, strictyaml.BitRate(), func(n uint64) string {
		if n == 0 {
			return ""
		}
		return strictyaml.BitsText(n)
	}, "rate", func(n uint64) uint64 { return n }}, name, usage)
}

// SizeVar adds an option for an amount of memory in bytes: 512KiB.
func SizeVar(f *pflag.FlagSet, to *int, name, usage string) {
	kind := strictyaml.Mapped(strictyaml.Size(0, math.MaxInt32), func(n int64) int { return int(n) })
	f.Var(&value[int]{to, kind, func(n int) string {
		if n == 0 {
			return ""
		}
		return strictyaml.SizeText(int64(n))
	}, "size", func(n uint64) int { return int(min(n, math.MaxInt32)) }}, name, usage)
}

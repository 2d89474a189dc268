// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"cmp"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// A Client reads and writes the objects of a kernel interface.
type Client interface {
	Read(device.Object) (device.Object, error)
	Write(old, next device.Object) error
}

// Write writes an object and reads it back. If the value differs, it ends the test.
func Write(t testing.TB, c Client, old, next device.Object) {
	t.Helper()
	must.Do(t, c.Write(old, next))
	o := cmp.Or(next, old)
	got, err := c.Read(o)
	must.Do(t, err)
	if !device.Equal(got, next) {
		t.Fatalf("%s: wrote %+v, read %+v", o.Key(), next, got)
	}
}

// Absent fails the test if an object with the key of o exists.
func Absent(t testing.TB, what string, c Client, o device.Object) {
	t.Helper()
	if got, err := c.Read(o); got != nil || err != nil {
		t.Errorf("%s: %v, %v, want nothing", what, got, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package must checks errors in tests. Do is for calls that must succeed, Refuse for calls that
// must fail. It is for tests only.
package must

import (
	"errors"
	"testing"
)

// Do ends the test with a failure if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Refuse fails the test if err is not the wanted error. what names the action that must fail.
func Refuse(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package must checks errors in tests: those that must not occur, and those that must. It is
// for tests only.
package must

import (
	"errors"
	"testing"
)

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Refuse fails the test unless err is the wanted error; what names the action that must be
// refused.
func Refuse(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

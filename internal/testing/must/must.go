// SPDX-License-Identifier: Apache-2.0

// Package must holds a test to the errors that it wants. It is for tests only.
package must

import (
	"errors"
	"testing"
)

// Do ends the test where something has failed that had to be done.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Refuse fails the test unless something was refused, and with the error that is
// wanted.
func Refuse(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

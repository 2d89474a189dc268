// SPDX-License-Identifier: Apache-2.0

// Package errtest checks errors and texts in tests.
package errtest

import (
	"strings"
	"testing"
)

// Says fails the test unless err contains each of wants. If one of wants is "", there must be no
// error. what names the case.
func Says(t testing.TB, what string, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
}

// Has fails the test unless text contains each of wants. what names the text.
func Has(t testing.TB, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q in:\n%.5000s", what, want, text)
		}
	}
}

// Lacks fails the test if text contains one of bad.
func Lacks(t testing.TB, what, text string, bad ...string) {
	t.Helper()
	for _, b := range bad {
		if strings.Contains(text, b) {
			t.Errorf("%s: %q is in it", what, b)
		}
	}
}

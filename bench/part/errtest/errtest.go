// SPDX-License-Identifier: Apache-2.0

// Package errtest holds the errors of tests to what they have to say.
package errtest

import (
	"strings"
	"testing"
)

// Says fails the test unless err says each of wants; where one is "" there has to
// be no error. what names the case.
func Says(t testing.TB, what string, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
}

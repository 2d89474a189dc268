// SPDX-License-Identifier: Apache-2.0

package lists_test

import (
	"fmt"
	"testing"

	"github.com/niclane/niclane/internal/lists"
)

func TestMiddle(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", `0 "" ""`},
		{"abc", "abc", `3 "" ""`},
		{"abc", "abxc", `2 "" "x"`},
		{"abc", "ac", `1 "b" ""`},
		{"abc", "", `0 "abc" ""`},
		{"", "abc", `0 "" "abc"`},
		{"abcd", "axyd", `1 "bc" "xy"`},
		{"aaa", "aa", `2 "a" ""`},
		{"abc", "xyz", `0 "abc" "xyz"`},
	} {
		from, a, b := lists.Middle([]byte(c.a), []byte(c.b))
		if got := fmt.Sprintf("%d %q %q", from, a, b); got != c.want {
			t.Errorf("%q, %q: got %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package led

import "testing"

func TestBelow(t *testing.T) {
	const membership = "3:cpuset:/niclane-bench-a/instance1\n1:name=systemd:/\n0::/niclane-bench-ab\n"
	for group, want := range map[string]bool{
		"/niclane-bench-a": true, "/niclane-bench-ab": true, "/niclane-bench-a/instance1": true,
		"/niclane-bench": false, "/instance1": false,
	} {
		if got := below(membership, group); got != want {
			t.Errorf("%s: %v, want %v", group, got, want)
		}
	}
}

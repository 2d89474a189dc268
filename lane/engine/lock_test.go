// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"github.com/niclane/niclane/lane/apply"
)

// TestPasses checks for which holders of the lock niclane waits: only for those that release it
// soon.
func TestPasses(t *testing.T) {
	for _, c := range []struct {
		holder apply.Holder
		want   bool
	}{
		{apply.Holder{}, true},
		{apply.Holder{PID: 7}, false},
		{apply.Holder{PID: 7, Command: []string{"niclane", "apply", "/niclane-agent.yaml"}}, false},
		{apply.Holder{PID: 7, Command: []string{"/usr/bin/niclane", "watch", "/l.yaml"}}, true},
		{apply.Holder{PID: 7, Command: []string{"/niclane-agent", "-node", "n"}}, true},
	} {
		if got := passes(c.holder); got != c.want {
			t.Errorf("%+v: %t, want %t", c.holder, got, c.want)
		}
	}
}

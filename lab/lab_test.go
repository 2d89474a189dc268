// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"strings"
	"testing"
)

func TestUpDown(t *testing.T) {
	l := raise(t, Config{})
	cmd, err := l.Command(context.Background(), SUT, Options{}, "ip", "-br", "addr")
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.77.0.1/24") {
		t.Errorf("ip addr on sut: %v\n%s", err, out)
	}
	t.Log(string(out))
}

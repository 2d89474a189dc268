// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == HelperCommand {
		fmt.Fprintln(os.Stderr, ExecMain(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// raise makes a lab with a name of its own, which is taken down at the end.
func raise(t *testing.T, c Config) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if c.Name == "" {
		c.Name = testName()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l, err := Up(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// testName differs between processes, so that tests may run side by side.
func testName() string { return fmt.Sprintf("labtest-%d", os.Getpid()) }

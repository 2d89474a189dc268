// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// A test can start this test binary in one of these roles.
const (
	upRole   = "test-up"   // calls Up with the name in the next argument
	downRole = "test-down" // calls Down with the name in the next argument
)

// TestMain runs the tests in network and mount namespaces of their own, with an empty /run. So when
// the tests compare the host before and after a lab, they see only their own objects.
func TestMain(m *testing.M) {
	vethtest.Main(m, vethtest.Isolate, map[string]func([]string) error{
		HelperCommand: ExecMain,
		upRole: func(args []string) error {
			_, err := Up(context.Background(), Config{Name: args[0]})
			return err
		},
		downRole: func(args []string) error { return Down(context.Background(), args[0]) },
	})
}

// raise makes a lab and takes it down when the test ends.
func raise(t *testing.T, c Config) *Lab {
	t.Helper()
	vethtest.NeedRoot(t)
	if c.Name == "" {
		c.Name = testName()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	l, err := Up(ctx, c)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// testName returns the name of a lab. It contains the process ID, because all labs of the host
// share its control groups.
func testName() string { return fmt.Sprintf("labtest-%d", os.Getpid()) }

// run runs a command on a host and returns its output.
func run(t *testing.T, l *Lab, host string, o Options, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd, err := l.Command(ctx, host, o, argv...)
	must.Do(t, err)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", strings.Join(argv, " "), host, err, out)
	}
	return string(out)
}

// on runs f on a thread in a host's network namespace. Sockets that f opens belong to that host.
func on(t *testing.T, l *Lab, host string, f func() error) {
	t.Helper()
	n, err := openNode(l.Config, host)
	must.Do(t, err)
	defer n.close()
	must.Do(t, n.do(f))
}

// eventually waits until f returns "". After a minute, it fails the test with the last result of f.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := f()
		if got == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(got)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestThreadIsNotTheProcess: when a thread changes its namespaces, those of the process stay the
// same.
func TestThreadIsNotTheProcess(t *testing.T) {
	vethtest.NeedRoot(t)
	before := netnsOf(os.Getpid())
	for range 200 {
		must.Do(t, thread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }))
		if after := netnsOf(os.Getpid()); after != before {
			t.Fatalf("the process is in network namespace %d, was in %d", after, before)
		}
	}
}

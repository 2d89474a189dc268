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

// Roles of the test program other than testing.
const (
	upRole   = "test-up"   // NAME: Up
	downRole = "test-down" // NAME: Down
)

// TestMain runs the tests in their own network and mount namespaces with an empty /run, so that
// the tests compare only their own objects before and after.
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

// testName contains the process ID, because control groups are the host's.
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

// on runs f on a thread in a host's network namespace. Sockets that f opens stay there.
func on(t *testing.T, l *Lab, host string, f func() error) {
	t.Helper()
	n, err := openNode(l.Config, host)
	must.Do(t, err)
	defer n.close()
	must.Do(t, n.do(f))
}

// eventually waits until f returns "". At the timeout it fails with the last result.
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

// TestThreadIsNotTheProcess: the process keeps its namespaces when its threads change theirs.
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

// SPDX-License-Identifier: Apache-2.0

package instances_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/instances"
)

// TestMain lets the test binary also act as two other programs: one that calls Run, and an
// instance.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "run" {
		var all []instances.Instance
		if err := json.Unmarshal([]byte(os.Args[2]), &all); err != nil {
			panic(err)
		}
		err := instances.Run(context.Background(), all)
		var ended instances.ErrEnded
		switch {
		case errors.As(err, &ended):
			fmt.Printf("ended: %s: %s\n", ended.Name, ended.State)
		case err != nil:
			fmt.Printf("error: %v\n", err)
		default:
			fmt.Println("done")
		}
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == "instance" {
		os.Exit(instance(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// instance prints the signals that it gets, and ends on SIGTERM. If code is not "", it ends at once
// with that exit code.
func instance(name, code string) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	if code != "" {
		n, _ := strconv.Atoi(code)
		return n
	}
	fmt.Println(name, "up", os.Getenv("OF"))
	for s := range signals {
		fmt.Println(name, s)
		if s == unix.SIGTERM {
			break
		}
	}
	return 0
}

// A run is a process that calls instances.Run. out is its output.
type run struct {
	*testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, all ...instances.Instance) *run {
	arg, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &run{t, cmd, bufio.NewReader(out)}
}

// lines reads n lines. It returns how often each line was read.
func (r *run) lines(n int) map[string]int {
	r.Helper()
	got := map[string]int{}
	for range n {
		line, err := r.out.ReadString('\n')
		if err != nil {
			r.Fatalf("%v after %v", err, got)
		}
		got[strings.TrimSpace(line)]++
	}
	return got
}

// rest returns the remaining output. It waits until the last process has ended.
func (r *run) rest() string {
	r.Helper()
	b, err := io.ReadAll(r.out)
	if err != nil {
		r.Fatal(err)
	}
	_ = r.cmd.Wait()
	return string(b)
}

func of(name, code string) instances.Instance {
	return instances.Instance{Name: name, Argv: []string{os.Args[0], "instance", name, code},
		Env: []string{"OF=env-" + name}}
}

func TestSignalsArePassedOn(t *testing.T) {
	r := start(t, of("a", ""), of("b", ""))
	if got := r.lines(2); got["a up env-a"] != 1 || got["b up env-b"] != 1 {
		t.Fatal(got)
	}
	_ = r.cmd.Process.Signal(unix.SIGHUP)
	if got := r.lines(2); got["a hangup"] != 1 || got["b hangup"] != 1 {
		t.Fatal(got)
	}
	_ = r.cmd.Process.Signal(unix.SIGTERM)
	if got := r.rest(); !strings.HasSuffix(got, "done\n") || !strings.Contains(got, "a terminated") ||
		!strings.Contains(got, "b terminated") {
		t.Errorf("after SIGTERM: %q", got)
	}
}

func TestOneEnds(t *testing.T) {
	r := start(t, of("a", ""), of("b", "7"))
	got := r.rest()
	if !strings.HasSuffix(got, "ended: b: exit status 7\n") {
		t.Errorf("%q", got)
	}
}

func TestOneCannotStart(t *testing.T) {
	r := start(t, of("a", ""), instances.Instance{Name: "b", Argv: []string{"/nothing/there"}})
	if got := r.rest(); !strings.Contains(got, "error: b: ") || !strings.Contains(got, "no such file") {
		t.Errorf("%q", got)
	}
}

// TestKilled kills the process that runs the instances. Then the instances end too.
func TestKilled(t *testing.T) {
	r := start(t, of("a", ""), of("b", ""))
	r.lines(2)
	_ = r.cmd.Process.Kill()
	if got := r.rest(); !strings.Contains(got, "a terminated") || !strings.Contains(got, "b terminated") {
		t.Errorf("after SIGKILL: %q", got)
	}
}

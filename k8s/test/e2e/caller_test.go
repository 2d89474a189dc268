// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/niclane/niclane/k8s/test/machine"
)

// callerName is the argument that makes this test's program call a CNI plugin by libcni, as
// containerd and CRI-O do. A shell cannot measure it: its fork takes longer than the call.
const callerName = "cni-caller"

// A calling describes the calls to make: Program is called with DEL and then ADD, Count times.
type calling struct {
	Program string
	Env     []string
	Conf    []byte
	Count   int
	// Every is the shortest time between the starts of two calls.
	Every time.Duration
	// Control is a program that runs InARow times after each pair of calls, "" for none. Its time
	// shows how fast the host runs processes at that moment.
	Control string
	InARow  int
}

// control is the key of the times of Control in the caller's output.
const control = "control"

// callerMain does nothing unless this process was started with the argument callerName. Then it
// makes the calls and ends the process. TestMain must call it at its start.
func callerMain() {
	if len(os.Args) != 2 || os.Args[1] != callerName {
		return
	}
	if err := call(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, callerName+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// call reads a calling as JSON from in, makes its calls, and writes their times to out: in
// milliseconds, by command.
func call(in io.Reader, out io.Writer) error {
	var c calling
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return err
	}
	took := map[string][]float64{}
	pace := time.NewTicker(max(c.Every, 1))
	defer pace.Stop()
	run := func(what, program string, times int, env []string) error {
		<-pace.C
		begin := time.Now()
		for range times {
			if _, err := new(invoke.RawExec).ExecPlugin(context.Background(), program, c.Conf, env); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		took[what] = append(took[what], time.Since(begin).Seconds()*1e3)
		return nil
	}
	for range c.Count {
		for _, command := range []string{"DEL", "ADD"} {
			if err := run(command, c.Program, 1, append([]string{"CNI_COMMAND=" + command}, c.Env...)); err != nil {
				return err
			}
		}
		if c.Control == "" {
			continue
		}
		if err := run(control, c.Control, c.InARow, nil); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(took)
}

// run makes the calls on a machine and returns their times in milliseconds, by command.
func (c calling) run(m *machine.Machine) (map[string][]float64, error) {
	in, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	const inside = "/opt/" + callerName
	if err := os.WriteFile(m.OnDisk(inside), self, 0o700); err != nil {
		return nil, err
	}
	out, err := m.Pipe(string(in), inside, callerName)
	if err != nil {
		return nil, err
	}
	took := map[string][]float64{}
	return took, json.Unmarshal([]byte(out), &took)
}

// TestCaller tests the caller on a machine, with a one-line plugin that stores its input.
func TestCaller(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: namespaces and control groups need it")
	}
	m, err := machine.Boot(machine.Config{Name: "niclane-caller", Disk: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Halt(); err != nil {
			t.Error(err)
		}
	})
	plugin := func(script string) calling {
		if err := os.WriteFile(m.OnDisk("opt/plugin"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return calling{Program: "/opt/plugin", Env: []string{"CNI_IFNAME=eth7", "PATH=/bin"},
			Conf: []byte(`{"name":"n"}`), Count: 2}
	}
	c := plugin(`echo "$CNI_COMMAND $CNI_IFNAME $(cat)" >>/var/told; sleep 0.02`)
	if err := os.WriteFile(m.OnDisk("opt/control"),
		[]byte("#!/bin/sh\n/bin/echo x >>/var/controlled; /bin/sleep 0.02\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.Control, c.InARow = "/opt/control", 3
	took, err := c.run(m)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(m.OnDisk("var/controlled")); err != nil || len(text) != 2*6 {
		t.Errorf("the control has run for %q, %v, want twice three times", text, err)
	}
	if ms := took[control]; len(ms) != 2 || ms[0] < 60 || ms[1] < 60 {
		t.Errorf("the control took %v ms, want two of 60 and more", ms)
	}
	told, err := os.ReadFile(m.OnDisk("var/told"))
	const once = `DEL eth7 {"name":"n"}` + "\n" + `ADD eth7 {"name":"n"}` + "\n"
	if err != nil || string(told) != once+once {
		t.Errorf("the plugin was told, %v:\n%s", err, told)
	}
	for _, command := range []string{"ADD", "DEL"} {
		if ms := took[command]; len(ms) != 2 || ms[0] < 20 || ms[1] < 20 {
			t.Errorf("%s took %v ms, want two of 20 and more", command, ms)
		}
	}
	if _, err := plugin(`echo '{"code":7,"msg":"no prevResult"}'; exit 1`).run(m); err == nil ||
		!strings.Contains(err.Error(), "DEL: no prevResult") {
		t.Errorf("a plugin that fails: %v", err)
	}
}

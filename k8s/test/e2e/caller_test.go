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

// callerName is the argument by which this program is one that calls a CNI plugin as
// containerd and CRI-O do, by libcni's own code. A shell's fork takes longer than what
// is measured.
const callerName = "cni-caller"

// A calling is what to call, first DEL and then ADD, as often as Count says.
type calling struct {
	Program string
	Env     []string
	Conf    []byte
	Count   int
	// Pause is before each call: the pace of the load, and no wait for anything.
	Pause time.Duration
	// InARow is how often the program runs in each call, 0 for once.
	InARow int
}

// callerMain ends the process if it is the caller. It belongs at the start of
// TestMain.
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

// call reads a calling and writes the milliseconds of each call, by command.
func call(in io.Reader, out io.Writer) error {
	var c calling
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return err
	}
	took := map[string][]float64{}
	for range c.Count {
		for _, command := range []string{"DEL", "ADD"} {
			time.Sleep(c.Pause)
			env := append([]string{"CNI_COMMAND=" + command}, c.Env...)
			begin := time.Now()
			for range max(c.InARow, 1) {
				if _, err := new(invoke.RawExec).ExecPlugin(context.Background(), c.Program, c.Conf, env); err != nil {
					return fmt.Errorf("%s: %w", command, err)
				}
			}
			took[command] = append(took[command], time.Since(begin).Seconds()*1e3)
		}
	}
	return json.NewEncoder(out).Encode(took)
}

// run has a machine make the calls.
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

// TestCaller has a machine call a plugin of one line, which keeps what it is told.
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
		return calling{Program: "/opt/plugin", Env: []string{"CNI_IFNAME=eth7", "PATH=/bin"}, Conf: []byte(`{"name":"n"}`), Count: 2}
	}
	took, err := plugin(`echo "$CNI_COMMAND $CNI_IFNAME $(cat)" >>/var/told; sleep 0.02`).run(m)
	if err != nil {
		t.Fatal(err)
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
	if _, err := plugin(`echo '{"code":7,"msg":"no prevResult"}'; exit 1`).run(m); err == nil || !strings.Contains(err.Error(), "DEL: no prevResult") {
		t.Errorf("a plugin that fails: %v", err)
	}
}

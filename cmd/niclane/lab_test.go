// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestLab runs the scripts that need a device: each in a lab of its own, on
// the emulated card, with the command as a user has it.
func TestLab(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the lab makes network namespaces")
	}
	// The labs' names and namespaces are the host's: one script at a time.
	paths, err := filepath.Glob("testdata/lab/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, path := range paths {
		testscript.Run(t, testscript.Params{
			Files:               []string{path},
			RequireExplicitExec: true,
			Setup:               raiseLab,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"exits": exits,
				"sut":   sut,
				"json":  isJSON,
			},
		})
	}
}

// testLab is the name of the lab, apart from one that a user has up.
const testLab = "nltest"

func raiseLab(env *testscript.Env) error {
	// A run that was killed may have left one.
	_ = labCommand(env, "down").Run()
	if out, err := labCommand(env, "up").CombinedOutput(); err != nil {
		env.T().Log(string(out))
		return err
	}
	env.Defer(func() {
		if out, err := labCommand(env, "down").CombinedOutput(); err != nil {
			env.T().Log(string(out))
			env.T().FailNow()
		}
	})
	env.Setenv("CGROUP", "/"+testLab+"-lab-sut")
	return nil
}

func labCommand(env *testscript.Env, verb string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err) // the test binary is running
	}
	cmd := exec.Command(self, "lab", "--name", testLab, verb)
	cmd.Args[0] = "niclane"
	return cmd
}

// sut CODE COMMAND ARG... runs a command in the lab's system under test; it
// must end with that exit code. Journals and lock are the script's own.
func sut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sut CODE COMMAND ARG...")
	}
	argv := []string{args[0], "niclane", "lab", "--name", testLab, "exec", "sut", "--", args[1]}
	if args[1] == "niclane" {
		argv = append(argv, "--state-dir", ts.Getenv("WORK")+"/state")
	}
	exits(ts, false, append(argv, args[2:]...))
}

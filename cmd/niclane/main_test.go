// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"niclane": main})
}

// TestScripts runs what needs no kernel state: one archive per behaviour,
// named <command>_<case>.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("STATE", env.WorkDir+"/state")
			env.Setenv("RUN", env.WorkDir+"/run")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			return cond == "root" && os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
		RequireExplicitExec: true,
	})
}

// exits CODE COMMAND ARG... runs a command that must end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	got := codeOf(ts.Exec(args[1], args[2:]...))
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// codeOf is the exit code that a command's error means.
func codeOf(err error) string {
	if err == nil {
		return "0"
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

// json FILE... fails unless every file is one JSON document.
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		if !json.Valid([]byte(ts.ReadFile(name))) {
			ts.Fatalf("%s is not JSON:\n%s", name, ts.ReadFile(name))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package clitest runs test scripts of niclane's commands: scripts that need no lab, and scripts
// that run commands on the hosts of a lab.
package clitest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A Check checks the output of one command line in a script.
type Check func(args []string, stdout, stderr string) error

// Scripts runs every test script in testdata/script. Each script tests one behaviour and is named
// <command>_<case>. No script needs kernel state. dir is the directory of the built programs. It is
// "" if testscript.Main has put the programs into PATH. check may be nil.
func Scripts(t *testing.T, dir string, check Check) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			first(env, dir)
			env.Setenv("STATE", env.WorkDir+"/state")
			env.Setenv("RUN", env.WorkDir+"/run")
			env.Setenv("LAB", testLab) // so that no script meets a lab that runs on this host
			return readable(env)
		},
		Condition: func(cond string) (bool, error) {
			return cond == "root" && os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits(check),
			"json":  isJSON,
		},
		RequireExplicitExec: true,
	})
}

// first puts dir at the start of the script's PATH. If dir is "", it does nothing.
func first(env *testscript.Env, dir string) {
	if dir != "" {
		env.Setenv("PATH", dir+string(filepath.ListSeparator)+env.Getenv("PATH"))
	}
}

// readable sets permissions so that other users can run the programs and read the script's files.
func readable(env *testscript.Env) error {
	for _, dir := range append(filepath.SplitList(env.Getenv("PATH")), env.WorkDir) {
		for ; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm()&0o005 == 0o005 {
				continue
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

// exits CODE COMMAND ARG... runs a command and checks its exit code and its output.
func exits(check Check) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 {
			ts.Fatalf("usage: exits CODE COMMAND ARG...")
		}
		got := CodeOf(ts.Exec(args[1], args[2:]...))
		if got != args[0] {
			ts.Fatalf("exit code %s, want %s", got, args[0])
		}
		if check != nil {
			ts.Check(check(args[1:], ts.ReadFile("stdout"), ts.ReadFile("stderr")))
		}
	}
}

// CodeOf returns the exit code of a command, from the error of its run. If the command never ran,
// CodeOf returns the error's text.
func CodeOf(err error) string {
	if err == nil {
		return "0"
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

// isJSON FILE... checks that each file is one JSON document.
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		if !json.Valid([]byte(ts.ReadFile(name))) {
			ts.Fatalf("%s is not JSON:\n%s", name, ts.ReadFile(name))
		}
	}
}

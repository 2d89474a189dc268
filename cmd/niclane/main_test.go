// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && filepath.Base(os.Args[0]) != "niclane" && strings.HasPrefix(os.Args[1], "internal-") {
		// A command of niclane's that has started itself by another name would
		// run the tests, which start it again.
		fmt.Fprintf(os.Stderr, "%s is not niclane, which %s is for\n", os.Args[0], os.Args[1])
		os.Exit(1)
	}
	commands := map[string]func(){"niclane": main, nodeServer: serveNode, "sandbox": sandbox}
	i := isolated{m: m}
	if commands[filepath.Base(os.Args[0])] == nil {
		if err := i.visible(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testscript.Main(i, commands)
}

// isolated tests run apart from the labs and journals of the host and of other
// packages' tests.
type isolated struct {
	m   *testing.M
	own string // a directory for temporary files, "" for the usual one
}

func (i isolated) Run() int {
	defer os.RemoveAll(i.own)
	return vethtest.Isolate(i.m)
}

// visible has root's temporary files be where a unit of niclane persist sees
// them, which the usual place is not. The process of the isolated tests finds it
// made.
func (i *isolated) visible() (err error) {
	const made = "NICLANE_TEST_TEMPORARY"
	if os.Geteuid() != 0 || os.Getenv(made) != "" {
		return nil
	}
	// Short: sockets are below it, whose names have 107 bytes at most (unix(7)).
	own := fmt.Sprintf("/var/n%d", os.Getpid())
	if err := os.Mkdir(own, 0o755); errors.Is(err, unix.EROFS) {
		return nil // in a guest, whose scripts persist nothing
	} else if err != nil {
		return err
	}
	i.own = own
	return errors.Join(os.Setenv("TMPDIR", own), os.Setenv(made, "1"))
}

// TestScripts runs what needs no kernel state: one archive per behaviour,
// named <command>_<case>.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("STATE", env.WorkDir+"/state")
			env.Setenv("RUN", env.WorkDir+"/run")
			env.Setenv("LAB", testLab) // not the one of a demo that runs meanwhile
			return readable(env)
		},
		Condition: func(cond string) (bool, error) {
			return cond == "root" && os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"json":  isJSON,
		},
		RequireExplicitExec: true,
	})
}

// readable lets another user run the command and read the script's files.
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

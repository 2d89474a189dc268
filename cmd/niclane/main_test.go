// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/clitest"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && filepath.Base(os.Args[0]) != "niclane" && strings.HasPrefix(os.Args[1], "internal-") {
		// This binary acts as niclane only if its name is niclane. Under another name it would run the
		// tests, and the tests would start it again, without end.
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

// isolated runs the tests. The tests see no labs and journals of the host, and none of other
// packages' tests.
type isolated struct {
	m   *testing.M
	own string // directory for temporary files; "": the default one
}

func (i isolated) Run() int {
	defer os.RemoveAll(i.own)
	return vethtest.Isolate(i.m)
}

// visible makes a directory for root's temporary files and sets TMPDIR to it. Units of niclane
// persist can read files there, but not in the default directory. The tests run in a child process,
// which inherits TMPDIR.
func (i *isolated) visible() (err error) {
	const made = "NICLANE_TEST_TEMPORARY"
	if os.Geteuid() != 0 || os.Getenv(made) != "" {
		return nil
	}
	// The path is short, because the paths of sockets in it may have at most 107 bytes (unix(7)).
	own := fmt.Sprintf("/var/n%d", os.Getpid())
	if err := os.Mkdir(own, 0o755); errors.Is(err, unix.EROFS) {
		return nil // in a guest; no script there uses niclane persist
	} else if err != nil {
		return err
	}
	i.own = own
	return errors.Join(os.Setenv("TMPDIR", own), os.Setenv(made, "1"))
}

func TestScripts(t *testing.T) { clitest.Scripts(t, "", conforms(t)) }

// TestLab also needs niclane-bench, which makes the traffic.
func TestLab(t *testing.T) { clitest.Lab(t, programs.Readable(t, program.Bench), conforms(t), nil) }

func TestExamples(t *testing.T) { clitest.Examples(t, (&app{}).command(), examples) }

// TestManual: in the pages of niclane and of its commands, the generated parts are what make
// generate writes.
func TestManual(t *testing.T) {
	pages := map[string]string{"version": ""}
	for _, c := range partCommands() {
		pages[c.Name()] = "man/niclane-bench-" + c.Name() + ".8.md"
	}
	pages["bench"] = "niclane-bench.8.md"
	m := clitest.Manual{
		Program: program.Niclane, Root: (&app{}).command(), Limit: 600,
		Typed: func(name string) string { return "niclane " + name },
		Page: func(name string) string {
			if page, ok := pages[name]; ok {
				return page
			}
			return "man/niclane-" + name + ".8.md"
		},
	}
	m.Test(t)
}

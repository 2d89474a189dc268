// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"

	"golang.org/x/sys/unix"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/poller"
)

// internals are the parts of niclane that run in processes of their own. Keys are the first
// argument of such a process. Only niclane starts these processes, users do not.
var internals = map[string]func(args []string) error{
	lab.HelperCommand:    execInLab,
	apply.GuardArg:       one(apply.RunGuard),
	poller.Command:       one(poller.Main),
	niclaneapp.KeeperArg: niclaneapp.RunKeeper,
	laneArg:              becomeInLane,
	instancesArg:         runInstances,
	placeArg:             becomeInPlace,
	cli.VirtualInit:      cli.InitGuest,
}

// execInLab turns this process into a command on a host of the lab. If that fails, it returns an
// error with an exit code of env(1).
func execInLab(args []string) error {
	err := lab.ExecMain(args)
	code := exitNotRun
	switch {
	case errors.Is(err, exec.ErrNotFound):
		code = exitNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC):
		code = exitNotExecutable
	}
	return cli.ExitCode{Code: code, Err: fmt.Errorf("lab exec: %w", err)}
}

// one converts a function with one argument to an internal part: any other number of arguments is
// an error.
func one(run func(string) error) func([]string) error {
	return func(args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%d arguments, want one", len(args))
		}
		return run(args[0])
	}
}

// runInternal runs the internal part that args name. If args name none, ok is false.
func runInternal(args []string, stderr io.Writer) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	run, ok := internals[args[0]]
	if !ok {
		return 0, false
	}
	if err := run(args[1:]); err != nil {
		fmt.Fprintln(stderr, cli.Prefixed(err))
		return cli.CodeOf(err), true
	}
	return cli.ExitDone, true
}

// SPDX-License-Identifier: Apache-2.0

// Package applier makes the lanes of one lanes file on the node's devices. It uses the same engine
// and journals as niclane's commands, so that the commands can show and undo its lanes.
package applier

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/watch/host"
)

// An Applier makes the lanes of one lanes file. It is a watch.Machine.
type Applier struct {
	host.Machine
}

// New returns an Applier. stateDir is the directory of the journals, runDir that of the lock, as
// for niclane's commands. config is the absolute path by which the journal names the lanes file.
// Apply also writes the lanes file there, for people to read.
func New(stateDir, runDir, config string) *Applier {
	return &Applier{host.Machine{
		Engine: &engine.Engine{StateDir: stateDir, RunDir: runDir, Memory: new(engine.Memory)}, Config: config,
	}}
}

// A RefusedError says that the device cannot have the planned lanes. Nothing was changed.
type RefusedError struct {
	// Problems begin with the path of the value in the policy.
	Problems []string
}

// Error implements error.
func (e *RefusedError) Error() string { return strings.Join(e.Problems, "; ") }

// Apply makes the device match the lanes file. If a step fails, it undoes the steps before. If
// another niclane is running, it waits for its end, but no longer than ctx.
func (a *Applier) Apply(ctx context.Context, f *policy.File) (*engine.Result, error) {
	if err := os.WriteFile(a.Config, f.Text, 0o600); err != nil { // written even if the file cannot be applied
		return nil, err
	}
	r, err := a.Engine.Apply(ctx, a.file(f), engine.ApplyOptions{Wait: true, Keep: true})
	return r, refused(f, err)
}

// Try plans a file and changes nothing.
func (a *Applier) Try(ctx context.Context, f *policy.File) (*plan.Plan, error) {
	p, err := a.Engine.Plan(ctx, a.file(f))
	if err != nil {
		return nil, refused(f, err)
	}
	return p.Plan, nil
}

func (a *Applier) file(f *policy.File) *engine.File {
	return &engine.File{Name: a.Config, Text: f.Text, Intent: f.Intent}
}

// refused converts plan.Errors to a RefusedError with the policy's paths. It returns other errors
// unchanged.
func refused(f *policy.File, err error) error {
	var errs plan.Errors
	if !errors.As(err, &errs) {
		return err
	}
	out := &RefusedError{}
	for _, e := range errs {
		if s := f.Locate(e.Path) + ": " + e.Message; !slices.Contains(out.Problems, s) {
			out.Problems = append(out.Problems, s)
		}
	}
	return out
}

// Remove undoes everything that Apply has made. It does not touch objects that another program has
// changed since, but returns an error that names them.
func (a *Applier) Remove(ctx context.Context) error {
	_, err := a.Engine.Rollback(ctx, engine.RollbackOptions{Wait: true, Choose: engine.Only(a.Config)})
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Package applier makes the lanes of one file on the node's devices, often, by the engine of
// niclane's commands, which see them as their own.
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

// An Applier makes one lanes file's lanes. It is a watch.Machine.
type Applier struct {
	host.Machine
}

// New returns an Applier. In stateDir are the journals, in runDir is the lock: those of
// niclane's commands. Config is the absolute path by which the lanes are journalled, and
// to which the lanes file is written for people to read.
func New(stateDir, runDir, config string) *Applier {
	return &Applier{host.Machine{
		Engine: &engine.Engine{StateDir: stateDir, RunDir: runDir, Memory: new(engine.Memory)}, Config: config,
	}}
}

// A RefusedError is a plan that cannot be made on this device. Nothing was
// changed.
type RefusedError struct {
	// Problems by path of the policy.
	Problems []string
}

// Error implements error.
func (e *RefusedError) Error() string { return strings.Join(e.Problems, "; ") }

// Apply makes what the file's lanes lack. If a step fails, what was done is undone. It
// waits for another niclane that is at work, as long as ctx lasts.
func (a *Applier) Apply(ctx context.Context, f *policy.File) (*engine.Result, error) {
	if err := os.WriteFile(a.Config, f.Text, 0o600); err != nil { // also if nothing is made of it
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

// refused says what cannot be made by paths of the policy.
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

// Remove undoes everything that Apply has made; what somebody else has changed since is
// left, and an error.
func (a *Applier) Remove(ctx context.Context) error {
	_, err := a.Engine.Rollback(ctx, engine.RollbackOptions{Wait: true, Choose: engine.Only(a.Config)})
	return err
}

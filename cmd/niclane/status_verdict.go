// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/lane/verify"
)

// A verdict has the lanes files that are applied on some devices, each with the drift that was
// found.
type verdict []appliedFile

type appliedFile struct {
	*engine.View
	intent *intent.Intent // nil if the journal's text cannot be read
}

// compareApplied compares the lanes of devices with what was applied. It does what verify does, but
// does not look at traffic. It does not wait for other commands.
func (a *app) compareApplied(ctx context.Context, devices []string) (verdict, error) {
	views, err := a.Engine().Look(ctx, func(j *journal.Journal) bool {
		return slices.ContainsFunc(j.Head().Devices, func(dev string) bool { return slices.Contains(devices, dev) })
	})
	if err != nil {
		return nil, err
	}
	var out verdict
	for _, v := range views {
		of := appliedFile{View: v}
		h := v.Journal.Head()
		if f, err := engine.Parse(h.Config, []byte(h.ConfigText)); err == nil {
			of.intent = f.Intent
		}
		out = append(out, of)
	}
	return out, nil
}

// add sets the members and the drift of the lane l.
func (v verdict) add(l *status.Lane) {
	for _, of := range v {
		if !slices.Contains(of.Journal.Head().Devices, l.Device) {
			continue
		}
		if of.intent != nil {
			for i := range of.intent.Lanes {
				if asked := &of.intent.Lanes[i]; asked.Name == l.Name {
					l.Members = status.Members(asked)
				}
			}
		}
		for _, f := range of.Findings {
			all := f.Lane == "" && (f.Device == "" || f.Device == l.Device)
			if f.Severity == verify.Drift && (all || f.Lane == l.Name && f.Device == l.Device) {
				l.Differs = append(l.Differs, f.Meaning)
			}
		}
	}
}

// write prints one line for each file: its lanes are in force, or a number of objects differ. For
// each difference, it prints what that means.
func (v verdict) write(w io.Writer) error {
	for _, of := range v {
		config := of.Journal.Head().Config
		n := verify.Found(of.Findings, verify.Drift)
		if n == 0 {
			fmt.Fprintf(w, "%s: in force\n", config)
			continue
		}
		verb := "differ"
		if n == 1 {
			verb = "differs"
		}
		fmt.Fprintf(w, "%s: %s %s from what was applied; niclane verify names them and what repairs them\n", config,
			cli.Plural(n, "object"), verb)
		for _, f := range of.Findings {
			if f.Severity == verify.Drift {
				fmt.Fprintf(w, "  %s: %s\n", f.Where(), f.Meaning)
			}
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// A File is a lanes file that was read and checked.
type File struct {
	// Name identifies the file in journals. It is an absolute path, the result of the function Name.
	Name string
	Text []byte
	*intent.Intent
	// Locate returns where the user wrote the value at a path. If Locate is nil, plan.Errors have
	// paths without lines.
	Locate func(path string) (name string, line int, at string)
}

// Parse parses the text of a lanes file. Its errors have lines; their type is in package config.
func Parse(name string, text []byte) (*File, error) {
	c, err := config.ParseFile(name, text)
	if err != nil {
		return nil, err
	}
	return &File{Name: name, Text: text, Intent: c.Intent, Locate: func(path string) (string, int, string) {
		at, line := c.Locate(path)
		return at, line, path
	}}, nil
}

// Devices returns the devices that the file names. If it names a bond, that is the only one.
func (f *File) Devices() []string {
	if f.Group.Bond != "" {
		return []string{f.Group.Bond}
	}
	return slices.Clone(f.Group.Devices)
}

// groups returns the control groups that the file names.
func (f *File) groups() []string { return Groups(f.Intent) }

// Name returns the name of a lanes file in journals: its absolute path with symbolic links
// resolved, so that each file has one name.
func Name(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// located adds file and line to the planner's errors.
func (f *File) located(err error) error {
	var es plan.Errors
	if f.Locate == nil || !errors.As(err, &es) {
		return err
	}
	lines := make([]string, len(es))
	for i, e := range es {
		name, line, at := f.Locate(e.Path)
		e.Path = at
		lines[i] = fmt.Sprintf("%s:%d: %s", name, line, e)
	}
	return &locatedErrors{strings.Join(lines, "\n"), es}
}

// locatedErrors are the planner's errors with file and line.
type locatedErrors struct {
	text string
	es   plan.Errors
}

func (e *locatedErrors) Error() string { return e.text }

func (e *locatedErrors) Unwrap() error { return e.es }

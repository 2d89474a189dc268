// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// An Error is one problem in a file.
type Error = strictyaml.Error

// Errors are all problems of one file, by position.
type Errors = strictyaml.Errors

// A File is a file that was read: what it asks for, and where it says so.
type File struct {
	Name   string
	Intent *intent.Intent

	at strictyaml.Positions
}

// Parse reads the content of a file of lanes. name is used in messages only.
// The error, if any, is an Errors with every problem of the file.
func Parse(name string, data []byte) (*intent.Intent, error) {
	f, err := ParseFile(name, data)
	if err != nil {
		return nil, err
	}
	return f.Intent, nil
}

// ParseFile is Parse that keeps the positions, for errors found later.
func ParseFile(name string, data []byte) (*File, error) {
	r := newReader(name)
	root, ok := r.Document(data, topWant)
	return r.file(name, root, ok)
}

// FromValues is ParseFile of a lanes file that was never text. Its errors have paths, and
// no lines.
func FromValues(name string, m strictyaml.Map) (*File, error) {
	r := newReader(name)
	root, ok := r.Values(m)
	return r.file(name, root, ok)
}

func (r *reader) file(name string, root strictyaml.Value, ok bool) (*File, error) {
	if ok {
		r.top(root)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	r.in.Source = name
	return &File{Name: name, Intent: &r.in, at: r.Positions()}, nil
}

// Locate returns the file and line of a path such as
// "lanes.redis.members[0].ports". What the file does not give is found at the
// nearest thing around it that the file does give.
func (f *File) Locate(path string) (file string, line int) {
	return f.Name, f.at.Of(path).Line
}

// Problem makes an Error with position of a problem that was found later, by
// somebody who knows its path only.
func (f *File) Problem(path, message string) Error {
	return f.at.Problem(f.Name, path, message)
}

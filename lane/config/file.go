// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// An Error is one problem in a file.
type Error = strictyaml.Error

// Errors are all problems of one file, sorted by position.
type Errors = strictyaml.Errors

// A File is a parsed file: its intent, and the position of each key.
type File struct {
	Name   string
	Intent *intent.Intent

	at strictyaml.Positions
}

// Parse reads the content of a lanes file. name is the file's name for messages. The error, if
// any, is an Errors with every problem of the file.
func Parse(name string, data []byte) (*intent.Intent, error) {
	f, err := ParseFile(name, data)
	if err != nil {
		return nil, err
	}
	return f.Intent, nil
}

// ParseFile is like Parse, but also returns the position of each key, for errors that are found
// later.
func ParseFile(name string, data []byte) (*File, error) {
	r := newReader(name)
	root, ok := r.Document(data, topWant)
	return r.file(name, root, ok)
}

// FromValues is like ParseFile, but reads values that were never text. Its errors have paths, but
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
// "lanes.redis.members[0].ports". If the file does not contain the path, it
// returns the line of the nearest enclosing key that the file contains.
func (f *File) Locate(path string) (file string, line int) {
	return f.Name, f.at.Of(path).Line
}

// Problem returns an Error with the position of path, for a problem that a caller found after
// parsing.
func (f *File) Problem(path, message string) Error {
	return f.at.Problem(f.Name, path, message)
}

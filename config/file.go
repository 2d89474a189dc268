// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/niclane/niclane/intent"
)

// A File is a file that was read: what it asks for, and where it says so.
type File struct {
	Name   string
	Intent *intent.Intent

	at map[string]position
}

type position struct{ line, column int }

func positionOf(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
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
	r := &reader{file: name, at: map[string]position{}, unsure: map[string]bool{}}
	root, ok := r.parse(data)
	if ok {
		r.top(root)
	}
	if len(r.errs) > 0 {
		return nil, r.errs.sorted()
	}
	r.in.Source = name
	return &File{Name: name, Intent: &r.in, at: r.at}, nil
}

// Locate returns the file and line of a path such as
// "lanes.redis.members[0].ports". What the file does not give is found at the
// nearest thing around it that the file does give.
func (f *File) Locate(path string) (file string, line int) {
	return f.Name, f.position(path).line
}

// Problem makes an Error with position of a problem that was found later, by
// somebody who knows its path only.
func (f *File) Problem(path, message string) Error {
	p := f.position(path)
	return Error{File: f.Name, Line: p.line, Column: p.column, Path: path, Message: message}
}

func (f *File) position(path string) position {
	for path != "" {
		if p, ok := f.at[path]; ok {
			return p
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return position{1, 1}
}

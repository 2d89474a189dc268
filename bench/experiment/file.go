// SPDX-License-Identifier: Apache-2.0

package experiment

import y "github.com/niclane/niclane/internal/strictyaml"

// An Error is one problem in a file. Errors are all problems of one file.
type (
	Error  = y.Error
	Errors = y.Errors
)

// A File is a parsed file: the experiment and its positions in the file.
type File struct {
	Name       string
	Experiment *Experiment

	at y.Positions
}

// Parse reads the content of an experiment file. name is used in messages only.
// The error, if any, is an Errors with every problem of the file.
func Parse(name string, data []byte) (*File, error) { return ParseOn(name, data, nil) }

// ParseOn is Parse for an experiment that runs on hosts. They replace its lab, and its
// processors and generators. nil is the lab.
func ParseOn(name string, data []byte, on *Hosts) (*File, error) {
	return ParseWith(name, data, Options{Hosts: on})
}

// Options are options of a run that change the experiment.
type Options struct {
	// Hosts replace the lab; nil: the lab.
	Hosts *Hosts
	// Quick applies the file's sizes.quick.
	Quick bool
	// Trial keeps one short window of each variant: see Experiment.Trial.
	Trial bool
	// Scale multiplies all numbers of connections, permille; 0: unchanged.
	Scale int
}

// ParseWith is Parse with options.
func ParseWith(name string, data []byte, o Options) (*File, error) {
	r := &reader{Reader: y.NewReader(name), e: start(), on: o.Hosts, quick: o.Quick, trial: o.Trial, scale: o.Scale}
	if root, ok := r.Document(data, topWant); ok {
		r.top(root)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	r.e.Source = name
	return &File{Name: name, Experiment: &r.e, at: r.Positions()}, nil
}

// Locate returns the file and line of a path such as "variants[2].lanes". For a path that the
// file does not have, it returns the nearest enclosing one that it has.
func (f *File) Locate(path string) (file string, line int) { return f.Name, f.at.Of(path).Line }

// Problem makes an Error, with its position, of a problem that a caller found later and knows
// by path only.
func (f *File) Problem(path, message string) Error { return f.at.Problem(f.Name, path, message) }

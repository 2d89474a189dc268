// SPDX-License-Identifier: Apache-2.0

package experiment

import y "github.com/niclane/niclane/internal/strictyaml"

// An Error is one problem in a file. Errors contains all problems of a file.
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

// ParseOn parses an experiment that runs on hosts. The hosts replace its lab, its processors and
// its generators. If on is nil, the experiment runs in its lab.
func ParseOn(name string, data []byte, on *Hosts) (*File, error) {
	return ParseWith(name, data, Options{Hosts: on})
}

// Options are settings of a run that change the experiment.
type Options struct {
	// Hosts replace the lab; nil: the experiment runs in its lab.
	Hosts *Hosts
	// Quick applies the file's sizes.quick.
	Quick bool
	// Virtual applies the file's sizes.virtual, and leaves out power: virtual time has none.
	Virtual bool
	// Trial reduces the run to one short window of each variant: see Experiment.Trial.
	Trial bool
	// Scale multiplies all numbers of connections, permille; 0: unchanged.
	Scale int
}

// ParseWith parses an experiment and changes it as the options say.
func ParseWith(name string, data []byte, o Options) (*File, error) {
	r := &reader{Reader: y.NewReader(name), e: start(), on: o.Hosts, quick: o.Quick, virtual: o.Virtual,
		trial: o.Trial, scale: o.Scale}
	if root, ok := r.Document(data, topWant); ok {
		r.top(root)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	r.e.Source = name
	return &File{Name: name, Experiment: &r.e, at: r.Positions()}, nil
}

// Locate returns the file and line of a path such as "variants[2].lanes". If the file does not have
// the path, Locate returns the line of the nearest enclosing path.
func (f *File) Locate(path string) (file string, line int) { return f.Name, f.at.Of(path).Line }

// Problem makes an Error from a path and a message, and adds the position of the path. Callers use
// it for problems found after Parse.
func (f *File) Problem(path, message string) Error { return f.at.Problem(f.Name, path, message) }

// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"embed"
	"path"
)

//go:embed examples/*.conf
var exampleFiles embed.FS

// An Example is a file that adqsetup's command examples writes: its name and
// settings, with comments of niclane's.
type Example struct {
	Name string // "memcached.conf"
	Text []byte
}

// Examples are all of them, by name.
func Examples() []Example {
	entries, err := exampleFiles.ReadDir("examples")
	if err != nil {
		panic(err) // it is part of the program
	}
	var out []Example
	for _, e := range entries {
		text, err := exampleFiles.ReadFile(path.Join("examples", e.Name()))
		if err != nil {
			panic(err)
		}
		out = append(out, Example{e.Name(), text})
	}
	return out
}

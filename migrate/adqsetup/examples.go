// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"embed"
	"path"
)

//go:embed examples/*.conf
var exampleFiles embed.FS

// An Example is one of the files that adqsetup's command examples writes. It has adqsetup's name
// and settings, but niclane's own comments.
type Example struct {
	Name string // "memcached.conf"
	Text []byte
}

// Examples returns all examples, by name.
func Examples() []Example {
	entries, err := exampleFiles.ReadDir("examples")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
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

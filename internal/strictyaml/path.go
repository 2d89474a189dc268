// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"path"
	"strings"
)

// Path is the name of a file, relative to the directory of the file that names
// it, which it may not leave. That is a rule of names: who opens it has to see
// to symbolic links, with os.Root.
func Path(what string) Kind[string] {
	want := what + ", relative to this file and below its directory"
	return Pattern(want, `^[^\x00-\x1f\\]{1,1000}$`, func(s string) string {
		if msg := OutsidePath(s); msg != "" {
			return msg + ", want " + want
		}
		return ""
	})
}

// OutsidePath says how a path leaves the directory that it is relative to, ""
// if it does not.
func OutsidePath(s string) string {
	switch clean := path.Clean(s); {
	case strings.HasPrefix(s, "/"):
		return "an absolute path"
	case strings.HasPrefix(s, "~"):
		return "which no shell reads"
	case clean == "..", strings.HasPrefix(clean, "../"):
		return "which leaves that directory"
	case clean == ".":
		return "which is a directory"
	}
	return ""
}

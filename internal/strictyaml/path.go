// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"path"
	"strings"
)

// Path is the name of a file, relative to the directory of the file that contains it, and below
// that directory. The rule covers names only: the code that opens the file must restrict
// symbolic links, with os.Root.
func Path(what string) Kind[string] {
	want := what + ", relative to this file and below its directory"
	return Pattern(want, `^[^\x00-\x1f\\]{1,1000}$`, func(s string) string {
		if msg := OutsidePath(s); msg != "" {
			return msg + ", want " + want
		}
		return ""
	})
}

// OutsidePath explains how a path leaves its directory, or returns "" if it does not.
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

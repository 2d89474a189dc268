// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"path"
	"strings"
)

// Path returns the kind of the name of a second file. The name is relative to the directory of
// the file that the Reader reads, and must stay below that directory. Path checks only the name:
// the code that opens the second file must use os.Root, against symbolic links that lead
// elsewhere.
func Path(what string) Kind[string] {
	want := what + ", relative to this file and below its directory"
	return Pattern(want, `^[^\x00-\x1f\\]{1,1000}$`, func(s string) string {
		if msg := OutsidePath(s); msg != "" {
			return msg + ", want " + want
		}
		return ""
	})
}

// OutsidePath returns why a path is not the name of a file below its directory, or "" if it is.
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

// SPDX-License-Identifier: Apache-2.0

// Package strictyaml reads the files that niclane takes from people. It is
// strict: whatever a file's table of keys does not know is an error with file,
// line, path, what was found and what is allowed, and all errors of a file are
// reported in one run. One table drives the reader, the JSON Schema for editors
// and the reference of the manual page.
//
// A Reader parses the text and keeps positions and problems; Section reads a
// mapping by its table; a Kind is a type of value. What contradicts itself
// across keys is for the owner of the format to find, who reports it to the
// same Reader, by path.
//
// Aliases, anchors, tags, merge keys and further documents are refused, and a
// file's size and depth are bounded. It opens no file.
package strictyaml

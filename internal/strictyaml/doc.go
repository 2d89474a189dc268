// SPDX-License-Identifier: Apache-2.0

// Package strictyaml reads the files that users write for niclane. It is strict: a key that the
// file's table does not have is an error. An error has file, line, path, the value found and
// the values allowed. One run reports all errors of a file. One table drives the reader, the
// JSON Schema for editors and the reference of the manual page.
//
// A Reader parses the text and keeps positions and problems. Section reads a mapping by its
// table. A Kind is a type of value. The package that defines a format checks for contradictions
// between keys itself, and reports them to the same Reader, by path.
//
// The package refuses aliases, anchors, tags, merge keys and further documents, and bounds a
// file's size and depth. It opens no file.
package strictyaml

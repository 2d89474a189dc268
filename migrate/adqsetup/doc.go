// SPDX-License-Identifier: Apache-2.0

// Package adqsetup converts files of Intel's adqsetup 2.0.2, in INI or JSON, to lanes files with
// the same meaning. If niclane handles a key in another way, a comment beside the key says so. A
// key is an error, with file and line, if niclane does not support it or adqsetup would silently
// ignore it. One run reports all errors. docs/migrating-from-adqsetup.md describes every key.
//
// The package checks its result with package config. It opens no file and looks at no device.
package adqsetup

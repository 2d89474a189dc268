// SPDX-License-Identifier: Apache-2.0

// Package adqsetup converts files of Intel's adqsetup 2.0.2, in INI or JSON, to lanes files
// with the same meaning. A comment beside a key says where niclane differs. A key that niclane
// does not support, or that adqsetup would silently ignore, is an error with file and line. One
// run reports all errors. docs/migrating-from-adqsetup.md describes every key.
//
// The package checks its result with package config. It opens no file and knows no device.
package adqsetup

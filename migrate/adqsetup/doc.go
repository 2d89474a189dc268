// SPDX-License-Identifier: Apache-2.0

// Package adqsetup turns files of Intel's adqsetup 2.0.2, in INI or JSON, into
// lanes files that mean the same. What niclane does otherwise stands as a
// comment beside the key; what it cannot do, or what adqsetup would silently
// have ignored, is an error with file and line, all of them in one run.
// docs/migrating-from-adqsetup.md goes through it key by key.
//
// Its result has been read by package config. It opens no file and knows no
// device.
package adqsetup

// SPDX-License-Identifier: Apache-2.0

// Package examples contains the lanes files of the papers, for tests that plan them for a card.
package examples

import "embed"

// Papers are the files papers/*.yaml: the papers' settings as lanes files.
//
//go:embed papers/*.yaml
var Papers embed.FS

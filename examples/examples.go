// SPDX-License-Identifier: Apache-2.0

// Package examples has the lanes files of the directory papers, for tests of
// what they do on a card.
package examples

import "embed"

// Papers are the papers' settings, papers/*.yaml.
//
//go:embed papers/*.yaml
var Papers embed.FS

// SPDX-License-Identifier: Apache-2.0

// Package examples embeds the lanes files of the directory papers, for tests of their plans on
// a card.
package examples

import "embed"

// Papers are the papers' settings, papers/*.yaml.
//
//go:embed papers/*.yaml
var Papers embed.FS

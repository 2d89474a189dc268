// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"fmt"
	"strings"
)

// Part returns the part of a manual page, in Markdown, that lists the keys of a section under a
// title and a text.
func Part[T any](title, text string, keys []Key[T]) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n", title, text)
	for _, k := range keys {
		if k.Refused != "" {
			continue
		}
		preset := "default: " + k.Preset
		if strings.HasPrefix(k.Preset, "required") {
			preset = k.Preset
		}
		fmt.Fprintf(&b, "\n**%s**: %s (%s)\n: %s\n", k.Name, k.Want, preset, k.Doc)
	}
	b.WriteString("\n")
	return b.String()
}

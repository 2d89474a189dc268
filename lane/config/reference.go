// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// Reference returns the part of lanes.yaml(5) that lists every key, in
// Markdown.
func Reference() string {
	var b strings.Builder
	part := func(title, text string, keys []key) { b.WriteString(strictyaml.Part(title, text, keys)) }
	part("TOP LEVEL", "A file has three keys.", topKeys())
	part("GLOBALS", "`globals` describes the devices, the host, and the default lane, which takes what no lane "+
		"matches.\n"+
		"It has these keys and those under GLOBALS AND LANES.", hostKeys())
	part("LANES", fmt.Sprintf("`lanes` maps names (%s) to lanes.\nThe name `default` is reserved. "+
		"A lane has these keys, those under GLOBALS AND LANES, and those under MEMBERS.", nameWant), shapeKeys())
	part("GLOBALS AND LANES", "In a lane these keys set the lane; in `globals` they set the default lane.",
		tuningKeys())
	part("MEMBERS", "A packet belongs to a member if it matches every given key; the items of a list are "+
		"alternatives.\n"+
		"A member needs `ports`, `addrs`, `remote-ports` or `remote-addrs`. "+
		"All keys but `name` stand in the lane\n"+
		"itself, or in each item of its list `members`.", listedKeys())
	fmt.Fprintf(&b, "## NOT TAKEN\n\nniclane refuses these keys of adqsetup:\n")
	for _, k := range groupKeys() {
		if k.Refused != "" {
			fmt.Fprintf(&b, "\n**%s**\n: %s\n", k.Name, k.Refused)
		}
	}
	return b.String()
}

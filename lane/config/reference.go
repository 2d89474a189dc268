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
	part("GLOBALS", "`globals` has what belongs to the devices and the host, and the default lane, which takes what "+
		"no lane matches:\n"+
		"these keys and those under GLOBALS AND LANES.", hostKeys())
	part("LANES", fmt.Sprintf("`lanes` has a lane per name (%s).\nThe name `default` is taken. "+
		"A lane has these keys, those under GLOBALS AND LANES, and those under MEMBERS.", nameWant), shapeKeys())
	part("GLOBALS AND LANES", "In a lane these are the lane's, in `globals` the default lane's.", tuningKeys())
	part("MEMBERS", "A packet belongs to a member if every key that is given matches; the items of a list are "+
		"alternatives.\n"+
		"`ports`, `addrs`, `remote-ports` or `remote-addrs` has to be given. "+
		"All but `name` stand in the lane itself,\n"+
		"or in each item of its list `members`.", listedKeys())
	fmt.Fprintf(&b, "## NOT TAKEN\n\nKeys of adqsetup's that niclane refuses:\n")
	for _, k := range groupKeys() {
		if k.Refused != "" {
			fmt.Fprintf(&b, "\n**%s**\n: %s\n", k.Name, k.Refused)
		}
	}
	return b.String()
}

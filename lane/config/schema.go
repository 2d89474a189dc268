// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/niclane/niclane/internal/strictyaml"

// Schema returns the JSON Schema (draft 2020-12) of a lanes file, for editors. It accepts one
// spelling of each key and checks only the file's structure. Only Parse checks sums, overlaps and
// similar rules.
func Schema() []byte {
	top := strictyaml.Object(topKeys(), "lanes.yaml", "version", "globals", "lanes")
	globals := strictyaml.Object(globalsKeys(), "The devices, the host, and the default lane.")
	globals["oneOf"] = []any{strictyaml.Schema{"required": []string{"dev"}},
		strictyaml.Schema{"required": []string{"bond"}}}
	lane := strictyaml.Object(laneKeys(), "A lane.", "queues")
	var own []any
	for _, k := range memberKeys() {
		own = append(own, strictyaml.Schema{"required": []string{k.Name}})
	}
	lane["dependentSchemas"] = strictyaml.Schema{listName: strictyaml.Schema{"not": strictyaml.Schema{"anyOf": own}}}
	for _, s := range []strictyaml.Schema{globals, lane} {
		s["not"] = strictyaml.Schema{"required": []string{"poller-priority", "poller-nice"}}
	}
	top["$defs"] = strictyaml.Schema{
		"globals": globals,
		"lanes": strictyaml.Schema{
			"type": "object", "minProperties": 1, "additionalProperties": strictyaml.Schema{"$ref": "#/$defs/lane"},
			"propertyNames": strictyaml.Schema{"pattern": namePattern, "not": strictyaml.Schema{"const": "default"}},
		},
		"lane":   lane,
		"member": strictyaml.Object(listedKeys(), "A member of a shared lane."),
	}
	return strictyaml.Encode(top, "niclane lanes")
}

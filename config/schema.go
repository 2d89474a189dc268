// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
)

// Schema returns the JSON Schema (draft 2020-12) of a file, for editors. It
// has each key in one spelling, and what follows from the shape of a file;
// sums, overlaps and the like only Parse can check.
func Schema() []byte {
	top := object(topKeys(), "lanes.yaml", "version", "globals", "lanes")
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "niclane lanes"
	globals := object(globalsKeys(), "The devices, the host, and the default lane.")
	globals["oneOf"] = []any{schema{"required": []string{"dev"}}, schema{"required": []string{"bond"}}}
	lane := object(laneKeys(), "A lane.", "queues")
	var own []any
	for _, k := range memberKeys() {
		own = append(own, schema{"required": []string{k.name}})
	}
	lane["dependentSchemas"] = schema{listName: schema{"not": schema{"anyOf": own}}}
	for _, s := range []schema{globals, lane} {
		s["not"] = schema{"required": []string{"poller-priority", "poller-nice"}}
	}
	top["$defs"] = schema{
		"globals": globals,
		"lanes": schema{
			"type": "object", "minProperties": 1, "additionalProperties": schema{"$ref": "#/$defs/lane"},
			"propertyNames": schema{"pattern": namePattern, "not": schema{"const": "default"}},
		},
		"lane":   lane,
		"member": object(listedKeys(), "A member of a shared lane."),
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(top); err != nil {
		panic(err) // maps, slices, strings and numbers always encode
	}
	return b.Bytes()
}

// object is the schema of a section.
func object(keys []key, doc string, required ...string) schema {
	properties := schema{}
	for _, k := range keys {
		if k.refused != "" {
			continue
		}
		p := schema{"description": k.doc}
		for name, v := range k.schema {
			p[name] = v
		}
		properties[k.name] = p
	}
	s := schema{"type": "object", "description": doc, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

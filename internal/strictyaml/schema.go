// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"bytes"
	"encoding/json"
)

// A Schema is a JSON Schema (draft 2020-12), or a part of one.
type Schema = map[string]any

// Object returns the schema of a section. It allows each key in one spelling, and no other keys.
func Object[T any](keys []Key[T], doc string, required ...string) Schema {
	properties := Schema{}
	for _, k := range keys {
		if k.Refused != "" {
			continue
		}
		p := Schema{"description": k.Doc}
		for name, v := range k.Schema {
			p[name] = v
		}
		properties[k.Name] = p
	}
	s := Schema{"type": "object", "description": doc, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// Encode returns the text of a complete schema, with its $schema and its title.
func Encode(top Schema, title string) []byte {
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = title
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(top); err != nil {
		panic(err) // maps, slices, strings and numbers always encode
	}
	return b.Bytes()
}

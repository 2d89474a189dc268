// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// PrintJSON prints v as indented JSON. A list without items is [], never null.
func (a *App) PrintJSON(v any) error { return WriteJSON(a.Stdout, v) }

// PrintJSONLine prints v as JSON on one line. It is for commands that print several documents.
func (a *App) PrintJSONLine(v any) error { return encode(a.Stdout, v, "") }

// WriteJSON writes v to w in the format of PrintJSON.
func WriteJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

func encode(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(withLists(v))
}

// withLists returns a copy of v without nil slices and nil maps: they become empty ones. So
// encoding/json writes [] and {}, and not null. Fields with omitempty stay as they are.
func withLists(v any) any {
	if v == nil {
		return nil
	}
	c := reflect.New(reflect.TypeOf(v)).Elem()
	c.Set(reflect.ValueOf(v))
	fill(c)
	return c.Interface()
}

// fill changes v itself as withLists describes. It makes a new copy of everything that v shares
// with the caller's value, so the caller's value does not change.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			fill(c.Elem())
			v.Set(c)
		}
	case reflect.Interface:
		if !v.IsNil() {
			v.Set(reflect.ValueOf(withLists(v.Interface())))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // encoding/json writes bytes as a string
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		for i := range c.Len() {
			fill(c.Index(i))
		}
		v.Set(c)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for at := v.MapRange(); at.Next(); {
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(at.Value())
			fill(item)
			c.SetMapIndex(at.Key(), item)
		}
		v.Set(c)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct {
				fillField(v.Field(i), f.Tag.Get("json"))
			}
		}
	}
}

func fillField(v reflect.Value, tag string) {
	name, options, _ := strings.Cut(tag, ",")
	switch k := v.Kind(); {
	case name == "-" && options == "":
	case strings.Contains(options, "omit") && (k == reflect.Slice || k == reflect.Map) && v.Len() == 0:
	default:
		fill(v)
	}
}

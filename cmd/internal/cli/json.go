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

// PrintJSONLine prints v as JSON on one line. Commands that print several documents use it.
func (a *App) PrintJSONLine(v any) error { return encode(a.Stdout, v, "") }

// WriteJSON writes v as PrintJSON prints it.
func WriteJSON(w io.Writer, v any) error { return encode(w, v, "  ") }

func encode(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	return enc.Encode(withLists(v))
}

// withLists returns a copy of v in which nil slices and maps are empty ones: encoding/json writes
// these as [] and {}, and nil as null. Fields with omitempty do not change.
func withLists(v any) any {
	if v == nil {
		return nil
	}
	c := reflect.New(reflect.TypeOf(v)).Elem()
	c.Set(reflect.ValueOf(v))
	fill(c)
	return c.Interface()
}

// fill makes the changes of withLists in v itself. It first copies memory that v shares with the
// caller's value, so that value stays as it is.
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

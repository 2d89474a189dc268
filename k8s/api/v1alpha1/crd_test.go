// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// TestCRDsAreTheTypes compares the manifests with the Go types, key by key. kubectl explain has a
// description of each field.
func TestCRDsAreTheTypes(t *testing.T) {
	for resource, types := range map[string]map[string]reflect.Type{
		v1alpha1.Resource: {"spec": reflect.TypeFor[v1alpha1.LanePolicySpec](),
			"status": reflect.TypeFor[v1alpha1.LanePolicyStatus]()},
		v1alpha1.NodeResource: {"spec": reflect.TypeFor[v1alpha1.LaneNodeSpec](),
			"status": reflect.TypeFor[v1alpha1.LaneNodeStatus]()},
	} {
		var crd struct {
			Spec struct {
				Group    string
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		text, err := os.ReadFile("../../dist/chart/niclane/crds/" + resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &crd); err == nil {
			t.Fatal("the manifest has nothing but what this test reads, which cannot be")
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		v := crd.Spec.Versions[0]
		if crd.Spec.Group != v1alpha1.Group || v.Name != v1alpha1.Version {
			t.Errorf("group %s, version %s", crd.Spec.Group, v.Name)
		}
		for part, typ := range types {
			compare(t, resource+" "+part, v.Schema.OpenAPIV3Schema.Properties[part], typ)
		}
		delete(v.Schema.OpenAPIV3Schema.Properties, "metadata") // the API server describes it
		described(t, resource, v.Schema.OpenAPIV3Schema)
	}
}

type schema struct {
	Type       string
	Desc       string `json:"description"`
	IntString  bool   `json:"x-kubernetes-int-or-string"`
	Preserve   bool   `json:"x-kubernetes-preserve-unknown-fields"` // another schema has checked it
	Properties map[string]schema
	Items      *schema
}

// compare reports keys that only the schema or only the Go type has, and keys whose types differ.
func compare(t *testing.T, path string, s schema, typ reflect.Type) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	kinds := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int32: "integer",
		reflect.Int64: "integer",
		reflect.Slice: "array", reflect.Struct: "object", reflect.Map: "object",
	}
	want := kinds[typ.Kind()]
	switch typ.Name() {
	case "Time":
		want = "string"
	case "IntOrString":
		if !s.IntString {
			t.Errorf("%s: want x-kubernetes-int-or-string", path)
		}
		return
	}
	if s.Type != want {
		t.Errorf("%s: type %q in the manifest, %s in Go", path, s.Type, typ)
	}
	switch {
	case typ.Kind() == reflect.Slice && s.Items != nil:
		compare(t, path+"[]", *s.Items, typ.Elem())
	case typ.Kind() == reflect.Struct && typ.Name() != "Time" && !s.Preserve:
		fields := map[string]reflect.Type{}
		collect(typ, fields)
		for name, ft := range fields {
			p, ok := s.Properties[name]
			if !ok {
				t.Errorf("%s.%s: in Go alone", path, name)
				continue
			}
			compare(t, path+"."+name, p, ft)
		}
		for name := range s.Properties {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s.%s: in the manifest alone", path, name)
			}
		}
	}
}

// described reports the fields without a description.
func described(t *testing.T, path string, s schema) {
	if s.Desc == "" {
		t.Errorf("%s: has no description", path)
	}
	for name, p := range s.Properties {
		described(t, path+"."+name, p)
	}
	if s.Items != nil {
		for name, p := range s.Items.Properties {
			described(t, path+"[]."+name, p)
		}
	}
}

func collect(typ reflect.Type, fields map[string]reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(strings.Split(options, ","), "inline") {
			collect(f.Type, fields)
			continue
		}
		fields[name] = f.Type
	}
}

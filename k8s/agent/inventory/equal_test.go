// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"reflect"
	"testing"
)

// TestEqual checks that two snapshots with the same content are equal, and that a change of any
// single field, also in nested values, makes them different.
func TestEqual(t *testing.T) {
	made := func() *Snapshot {
		s := new(Snapshot)
		fill(t, reflect.ValueOf(s).Elem())
		return s
	}
	if !made().Equal(made()) {
		t.Fatal("the same, made twice, is not equal")
	}
	fields := 0
	var change func(path string, s *Snapshot, v reflect.Value)
	differs := func(path string, s *Snapshot, v, to reflect.Value) {
		was := reflect.ValueOf(v.Interface())
		v.Set(to)
		if s.Equal(made()) || made().Equal(s) {
			t.Errorf("%s makes no difference", path)
		}
		v.Set(was)
		fields++
	}
	change = func(path string, s *Snapshot, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				change(path+"."+v.Type().Field(i).Name, s, v.Field(i))
			}
		case reflect.Pointer:
			differs(path, s, v, reflect.Zero(v.Type()))
			change(path, s, v.Elem())
		case reflect.Slice:
			differs(path, s, v, reflect.Zero(v.Type()))
			change(path+"[0]", s, v.Index(0))
		case reflect.Map, reflect.String, reflect.Int, reflect.Uint64, reflect.Bool:
			differs(path, s, v, reflect.Zero(v.Type()))
		default:
			t.Fatalf("%s: this test does not know what to do with a %s", path, v.Kind())
		}
	}
	s := made()
	change("Snapshot", s, reflect.ValueOf(s).Elem())
	if fields < 30 {
		t.Errorf("only %d fields were tried", fields)
	}
}

// fill gives every field a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), reflect.ValueOf("b"))
	case reflect.String:
		v.SetString("a")
	case reflect.Int:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("this test does not know what to do with a %s", v.Kind())
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	reflecting "github.com/invopop/jsonschema"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/schematest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/engine"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/live/waits"
	"github.com/niclane/niclane/migrate/adqsetup"
	"github.com/niclane/niclane/watch"
)

// documents are the JSON documents of the commands. Keys are the names of their schemas in
// docs/reference/schema.
var documents = map[string]any{
	"advise":       &[]niclaneapp.Advice{},
	"apply":        &applyOutput{},
	"attach":       &niclaneapp.Result{},
	"check":        &intent.Intent{},
	"confirm":      &confirmOutput{},
	"convert":      &adqsetup.Result{},
	"detach":       &[]niclaneapp.Record{},
	"error":        &cli.Failure{},
	"lab":          &lab.Lab{},
	"persist":      &persistOutput{},
	"plan":         &plan.Plan{},
	"probe":        &device.State{},
	"rollback":     &[]engine.RolledBack{},
	"split":        &split.Split{},
	"status":       &[]status.Lane{},
	"status-watch": &rateOutput{},
	"suggest":      &suggestOutput{},
	"verify":       &[]verifyOutput{},
	"waits":        &waits.Report{},
	"watch":        &watch.Event{},
}

const schemaDir = "docs/reference/schema"

func document(name string) *schematest.Record {
	r := &schematest.Record{
		File: filepath.Join(schemaDir, name+".schema.json"), Lists: true, Value: documents[name], Mapper: ownForms,
		Dirs:  []string{"lane", "app", "cmd/niclane", "cmd/internal", "lab", "live", "migrate", "watch"},
		Title: "niclane " + name + " --json", Description: "Rates of configuration are in bit/s.",
	}
	switch name {
	case "error":
		r.Title = "an error of niclane with --json"
	case "plan", "apply":
		r.More = objects
	}
	return r
}

// objects contains one object of each kind.
var objects = func() []any {
	var all []any
	for _, kind := range device.Kinds() {
		o, err := device.UnmarshalObject(fmt.Appendf(nil, `{"kind":%q,"value":{}}`, kind))
		if err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	return all
}()

// ownForms returns the schema of a type that defines its own JSON form: a text, or a step of a
// plan. For any other type, it returns nil.
func ownForms(t reflect.Type) *reflecting.Schema {
	if t != reflect.TypeFor[plan.Step]() {
		return schematest.Text(t)
	}
	object := &reflecting.Schema{OneOf: []*reflecting.Schema{{Type: "null"}}}
	for _, o := range objects {
		props := reflecting.NewProperties()
		props.Set("kind", &reflecting.Schema{Const: o.(device.Object).Kind()})
		props.Set("value", &reflecting.Schema{Ref: "#/$defs/device." + reflect.TypeOf(o).Name()})
		object.OneOf = append(object.OneOf, &reflecting.Schema{Type: "object", Properties: props,
			Required: []string{"kind", "value"}, AdditionalProperties: reflecting.FalseSchema})
	}
	props := reflecting.NewProperties()
	text := func(key, description string) {
		props.Set(key, &reflecting.Schema{Type: "string", Description: description})
	}
	described := func(description string) *reflecting.Schema {
		s := *object
		s.Description = description
		return &s
	}
	text("key", "Key of the object, for example rss/lane0/1.")
	props.Set("old", described("The object before the step; null if it does not exist."))
	props.Set("new", described("The object after the step; null if it does not exist."))
	text("part", "The part of a lane that the step belongs to.")
	text("reason", "Why the step is necessary.")
	text("cause", "The key of the lanes file that asks for the step.")
	props.Set("disruptive", &reflecting.Schema{Type: "boolean",
		Description: "The step can lose packets or make the link go down for a moment."})
	props.Set("commands", &reflecting.Schema{Type: "array", Items: &reflecting.Schema{Type: "string"},
		Description: "Command lines that do the same."})
	return &reflecting.Schema{Type: "object", Properties: props, AdditionalProperties: reflecting.FalseSchema,
		Required: []string{"key", "old", "new", "part", "reason", "cause"}}
}

// TestSchemasAreCurrent compares the schema files with the Go types. With -update it writes the
// files.
func TestSchemasAreCurrent(t *testing.T) {
	t.Chdir("../..")
	for name := range documents {
		document(name).Current(t, flag.Lookup("update").Value.String() == "true")
	}
	files, err := filepath.Glob(schemaDir + "/*.json")
	must.Do(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { // those of niclane-bench
		return strings.HasPrefix(filepath.Base(f), "bench-") || filepath.Base(f) == "simulate.schema.json"
	})
	if len(files) != len(documents) {
		t.Errorf("%d schemas in %s, and %d documents", len(files), schemaDir, len(documents))
	}
	page, err := os.ReadFile("docs/reference/json.md")
	must.Do(t, err)
	for _, name := range files {
		if link := "](schema/" + filepath.Base(name) + ")"; !strings.Contains(string(page), link) {
			t.Errorf("docs/reference/json.md has no link to %s", name)
		}
	}
}

// conforms returns a Check. It checks that what a command printed with --json matches the
// document's schema.
func conforms(t *testing.T) func(args []string, stdout, stderr string) error {
	t.Helper()
	holds := map[string]func([]byte) error{}
	dir, err := os.Getwd()
	must.Do(t, err)
	must.Do(t, os.Chdir("../.."))
	for name := range maps.Keys(documents) {
		holds[name] = document(name).Holds(t)
	}
	must.Do(t, os.Chdir(dir))
	return func(args []string, stdout, stderr string) error {
		name, ok := printed(args)
		if !ok {
			return nil
		}
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if last := lines[len(lines)-1]; strings.HasPrefix(last, `{"exitCode"`) {
			if err := holds["error"]([]byte(last)); err != nil {
				return err
			}
		}
		hold := holds[name]
		if hold == nil {
			return nil
		}
		for d := json.NewDecoder(strings.NewReader(stdout)); ; {
			var text json.RawMessage
			if err := d.Decode(&text); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := hold(bytes.TrimSpace(text)); err != nil {
				return err
			}
		}
	}
}

// printed returns the name of the document that a command line prints. Without --json, it returns
// false.
func printed(args []string) (string, bool) {
	i := len(args) - 1
	for ; i >= 0 && args[i] != "niclane"; i-- {
	}
	args, _, _ = cut(args[i+1:], "--")
	if i < 0 || !slices.Contains(args, "--json") {
		return "", false
	}
	c, rest, err := (&app{}).command().Find(args)
	if err != nil {
		return "", false
	}
	name := c.Name()
	switch {
	case name == "adqsetup":
		return "", false // its --json is about the format of the input
	case name == "status" && slices.Contains(rest, "--watch"):
		name += "-watch"
	case c.Parent().Name() == "lab":
		name = "lab"
	}
	return name, true
}

// cut does with a list what strings.Cut does with a string.
func cut(list []string, at string) (before, after []string, found bool) {
	i := slices.Index(list, at)
	if i < 0 {
		return list, nil, false
	}
	return list[:i], list[i+1:], true
}

// TestDocumentsConform: the check accepts a watch event. It refuses the event after a change that
// the schema does not allow. The scripts check the other documents.
func TestDocumentsConform(t *testing.T) {
	check := conforms(t)
	var b bytes.Buffer
	watch.WriteJSON(&b)(watch.Event{Time: time.Unix(1, 0), Kind: watch.Repaired, Lane: "web", Text: "x", After: 5,
		Objects: []string{"rss/eth0/1"}})
	args := []string{"niclane", "--json", "watch"}
	must.Do(t, check(args, b.String(), ""))
	must.Do(t, check([]string{"niclane", "watch"}, "text", ""))
	for name, wrong := range map[string]string{
		"another member": strings.Replace(b.String(), `"lane"`, `"lanes"`, 1),
		"another type":   strings.Replace(b.String(), `"web"`, `1`, 1),
		"no JSON":        "text",
	} {
		if check(args, wrong, "") == nil {
			t.Errorf("%s conforms", name)
		}
	}
	if check(args, "", `{"exitCode":"1","errors":[]}`) == nil {
		t.Error("an exit code in a string conforms")
	}
}

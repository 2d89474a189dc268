// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/live/services"
	"github.com/niclane/niclane/live/suggest"
)

var update = flag.Bool("update", false, "rewrite the goldens; read the diff")

// TestGolden makes a suggestion for each archive in testdata. The first word of the archive's comment
// names a fixture of package plan or device. device.patch is JSON that is merged over one of its
// devices, host.patch over all of it. inventory is
// the inventory as JSON, ask has words: "dev DEV", "port 80", "future tcp/80", "applied FILE" (a file
// of the archive). The expected result is lanes.yaml, or error.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			must.Do(t, err)
			got := golden(t, ar)
			if *update {
				ar.Files = append(slices.DeleteFunc(ar.Files, func(f txtar.File) bool {
					return f.Name == "lanes.yaml" || f.Name == "error"
				}), got)
				must.Do(t, os.WriteFile(path, txtar.Format(ar), 0o644))
				return
			}
			if diff := cmp.Diff(file(ar, got.Name), string(got.Data)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", got.Name, diff)
			}
		})
	}
}

func golden(t *testing.T, ar *txtar.Archive) txtar.File {
	t.Helper()
	in := suggest.Input{Inventory: &services.Inventory{}, State: fixture(t, ar)}
	must.Do(t, json.Unmarshal([]byte(file(ar, "inventory")), in.Inventory))
	for line := range strings.Lines(file(ar, "ask")) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "dev":
			in.Asked = value
		case "port":
			in.Selected = func(_ *services.Service, e *services.Endpoint) bool {
				return strconv.Itoa(int(e.Port)) == value
			}
		case "future":
			protocol, port, _ := strings.Cut(value, "/")
			n, err := strconv.ParseUint(port, 10, 16)
			must.Do(t, err)
			in.Future = &suggest.Future{Protocol: protocol, Port: uint16(n)}
		case "applied":
			f, err := config.ParseFile(value, []byte(file(ar, value)))
			must.Do(t, err)
			in.Applied = append(in.Applied, suggest.Applied{File: value, Devices: f.Intent.Group.Devices, Intent: f.Intent})
		default:
			t.Fatalf("ask: %q", line)
		}
	}
	in.Try = func(text string) error {
		f, err := config.ParseFile("lanes.yaml", []byte(text))
		must.Do(t, err) // the text has to be right, whatever the device allows
		_, err = plan.Make(f.Intent, in.State, plan.Owned{})
		return err
	}
	s, err := suggest.Make(in)
	if err != nil {
		return txtar.File{Name: "error", Data: []byte(err.Error() + "\n")}
	}
	again, err := suggest.Make(in)
	must.Do(t, err)
	if diff := cmp.Diff(s.LanesFile, again.LanesFile); diff != "" {
		t.Errorf("the same again differs:\n%s", diff)
	}
	for line := range strings.Lines(s.LanesFile) {
		if len(line) > 140 {
			t.Errorf("a line of %d columns: %s", len(line), line)
		}
	}
	return txtar.File{Name: "lanes.yaml", Data: []byte(s.LanesFile)}
}

// fixture reads the state that the archive names, with its device.patch.
func fixture(t *testing.T, ar *txtar.Archive) *device.State {
	t.Helper()
	name, _, _ := strings.Cut(string(ar.Comment), ":")
	b, err := os.ReadFile(filepath.Join("../../lane/plan/testdata", name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join("../../lane/device/testdata", name+".json"))
	}
	must.Do(t, err)
	st := &device.State{}
	must.Do(t, json.Unmarshal(b, st))
	if patch := file(ar, "device.patch"); patch != "" {
		name := struct{ Name string }{st.Devices[0].Name}
		must.Do(t, json.Unmarshal([]byte(patch), &name))
		if st.Device(name.Name) == nil { // a second device, like the first one
			st.Devices = append(st.Devices, st.Clone().Devices[0])
			st.Devices[len(st.Devices)-1].Name = name.Name
		}
		must.Do(t, json.Unmarshal([]byte(patch), st.Device(name.Name)))
	}
	if patch := file(ar, "host.patch"); patch != "" {
		must.Do(t, json.Unmarshal([]byte(patch), st))
	}
	return st
}

func file(ar *txtar.Archive, name string) string {
	for _, f := range ar.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

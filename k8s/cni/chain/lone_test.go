// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const calico = `{"name":"pods","cniVersion":"0.3.1","plugins":[{"type":"calico"},{"type":"portmap"}]}`

// files returns the contents of the files of a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

func put(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// plugins returns the types of the plugins in a list.
func plugins(t *testing.T, list string) []string {
	t.Helper()
	var l struct {
		Name    string
		Plugins []struct{ Type string }
	}
	if err := json.Unmarshal([]byte(list), &l); err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	var out []string
	for _, p := range l.Plugins {
		out = append(out, p.Type)
	}
	return out
}

func chained(list []byte) ([]byte, error) { return Add(list, false) }

// TestLone tests a directory whose first file configures one plugin. niclane-cni is chained in the
// list to which this file refers, or in a new list whose name sorts first. Undo restores the
// original files.
func TestLone(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		in    string // the file that changes
		want  []string
	}{
		"multus, by path": {map[string]string{
			"00-multus.conf":     `{"name":"m","type":"multus","clusterNetwork":"/etc/cni/net.d/10-calico.conflist"}`,
			"10-calico.conflist": calico},
			"10-calico.conflist", []string{"calico", "portmap", Type}},
		"multus, by name": {map[string]string{
			"00-multus.conf": `{"name":"m","type":"multus-shim","clusterNetwork":"pods"}`, "10-calico.conflist": calico,
			"05-another.conflist": `{"name":"another","plugins":[{"type":"bridge"}]}`},
			"10-calico.conflist", []string{"calico", "portmap", Type}},
		"a plugin alone": {map[string]string{
			"10-ovn-kubernetes.conf": `{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay"}`},
			wrapper, []string{"ovn-k8s-cni-overlay", Type}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, tt.files)
			path, err := change(dir, chained)
			if err != nil || filepath.Base(path) != tt.in {
				t.Fatalf("changed %s, %v, want %s", path, err, tt.in)
			}
			if got := plugins(t, files(t, dir)[tt.in]); !slices.Equal(got, tt.want) {
				t.Errorf("plugins %q, want %q", got, tt.want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info, err)
			}
			if again, err := change(dir, chained); again != "" || err != nil {
				t.Errorf("again: %s, %v", again, err)
			}
			if err := Undo(dir); err != nil {
				t.Fatal(err)
			}
			for file, text := range tt.files {
				got := files(t, dir)
				if len(got) != len(tt.files) || strings.Contains(got[file], Type) ||
					strings.HasSuffix(file, ".conf") && got[file] != text {
					t.Errorf("undone: %v", got)
				}
			}
		})
	}
}

// TestDelegate checks that niclane-cni is chained in the pod network's configuration inside Multus'
// own file.
func TestDelegate(t *testing.T) {
	for _, delegate := range []string{calico, `{"name":"pods","type":"calico"}`} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"00-multus.conf": `{"name":"m","type":"multus","delegates":[` + delegate +
			`,{"type":"other"}]}`})
		if _, err := change(dir, chained); err != nil {
			t.Fatal(err)
		}
		var l lone
		if err := json.Unmarshal([]byte(files(t, dir)["00-multus.conf"]), &l); err != nil || len(l.Delegates) != 2 {
			t.Fatalf("%v: %v", err, files(t, dir))
		}
		if got := plugins(t, string(l.Delegates[0])); got[0] != "calico" || got[len(got)-1] != Type {
			t.Errorf("plugins %q", got)
		}
		if again, err := change(dir, chained); again != "" || err != nil {
			t.Errorf("again: %s, %v", again, err)
		}
		if err := Undo(dir); err != nil || strings.Contains(files(t, dir)["00-multus.conf"], Type) {
			t.Errorf("undone: %v, %v", err, files(t, dir))
		}
	}
}

// TestWrapperFollows checks that the wrapper changes when the file that it wraps changes, and
// disappears when that file does.
func TestWrapperFollows(t *testing.T) {
	dir := t.TempDir()
	step := func(all map[string]string, remove ...string) map[string]string {
		t.Helper()
		put(t, dir, all)
		for _, name := range remove {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := change(dir, chained); err != nil {
			t.Error(err)
		}
		return files(t, dir)
	}
	if got := step(map[string]string{"10-a.conf": `{"name":"a","type":"a"}`}); !strings.Contains(got[wrapper], `"a"`) {
		t.Errorf("%v", got)
	}
	if got := step(map[string]string{"10-a.conf": `{"name":"a","type":"b"}`}); !strings.Contains(got[wrapper], `"b"`) {
		t.Errorf("%v", got)
	}
	if got := step(map[string]string{"05-c.conflist": calico}); got[wrapper] != "" ||
		!strings.Contains(got["05-c.conflist"], Type) {
		t.Errorf("a list came before it: %v", got)
	}
	step(nil, "05-c.conflist")
	if err := os.Remove(filepath.Join(dir, "10-a.conf")); err != nil {
		t.Fatal(err)
	}
	if _, err := change(dir, chained); err == nil || len(files(t, dir)) > 0 {
		t.Errorf("the network is gone: %v, %v", err, files(t, dir))
	}
}

func TestLoneRefused(t *testing.T) {
	for want, all := range map[string]map[string]string{
		"rename it to 10-":                 {"+a.conf": `{"name":"a","type":"a"}`},
		"type is missing":                  {"10-a.conf": `{"name":"a"}`},
		"not a JSON object":                {"10-a.conf": `[]`},
		`has the name "nowhere"`:           {"00-m.conf": `{"type":"multus","clusterNetwork":"nowhere"}`},
		"/x/10-a.conf is not a list":       {"00-m.conf": `{"type":"multus","clusterNetwork":"/x/10-a.conf"}`},
		"00-m.conf: delegates[0]: type is": {"00-m.conf": `{"type":"multus","delegates":[{}]}`},
	} {
		dir := t.TempDir()
		put(t, dir, all)
		if _, err := change(dir, chained); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", all, err, want)
		}
		if got := files(t, dir); len(got) != len(all) {
			t.Errorf("%s: %v", want, got)
		}
	}
}

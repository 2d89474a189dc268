// SPDX-License-Identifier: Apache-2.0

package split_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

var update = flag.Bool("update", false, "write what is printed into the goldens")

// TestGoldens divides lanes on the machines in testdata. Each golden file contains a sysfs, a lanes
// file, a request, and the wanted output. A file of that sysfs with the single line "-> TARGET" is
// a symbolic link.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(name)
			must.Do(t, err)
			got := divide(t, ar)
			want := &ar.Files[len(ar.Files)-1]
			if want.Name != "want" {
				t.Fatalf("%s: the last file is %q", name, want.Name)
			}
			if *update {
				want.Data = []byte(got)
				must.Do(t, os.WriteFile(name, txtar.Format(ar), 0o644))
				return
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// divide divides the lane of a golden file and returns the output, or the error as text.
func divide(t *testing.T, ar *txtar.Archive) string {
	root := t.TempDir()
	var lanes []byte
	var request string
	for _, f := range ar.Files {
		switch {
		case f.Name == "lanes.yaml":
			lanes = f.Data
		case f.Name == "request":
			request = string(f.Data)
		case strings.HasPrefix(f.Name, "sys/"):
			put(t, filepath.Join(root, f.Name), string(f.Data))
		}
	}
	sys := numa.Sys(root)
	nodes, err := sys.Nodes()
	must.Do(t, err)
	file, err := config.ParseFile("lanes.yaml", lanes)
	must.Do(t, err)
	r := split.Request{Nodes: nodes}
	for line := range strings.Lines(request) {
		f := strings.Fields(line)
		switch f[0] {
		case "lane":
			r.Lane = f[1]
		case "content":
			r.Content = split.Content(f[1])
		case "drop-groups":
			r.DropGroups = true
		case "nodes":
			for _, x := range f[1:] {
				n, err := strconv.Atoi(x)
				must.Do(t, err)
				r.Only = append(r.Only, n)
			}
		case "device": // NAME NODE
			n, err := strconv.Atoi(f[2])
			must.Do(t, err)
			r.Devices = append(r.Devices, numa.Device{Name: f[1], Node: n})
		case "storage": // PATH MAJOR:MINOR
			var major, minor uint32
			if _, err := fmt.Sscanf(f[2], "%d:%d", &major, &minor); err != nil {
				t.Fatal(err)
			}
			node, err := sys.Block(major, minor)
			must.Do(t, err)
			r.Storage = append(r.Storage, numa.Storage{Path: f[1], Node: node})
		case "command":
			r.Command = f[1:]
		default:
			t.Fatalf("request: %q", line)
		}
	}
	s, err := split.Make(lanes, file, r)
	if err != nil {
		if _, ok := errors.AsType[split.Error](err); !ok {
			return "not a problem of the request's: " + err.Error() + "\n"
		}
		return "error: " + err.Error() + "\n"
	}
	again, err := split.Make(lanes, file, r)
	if diff := cmp.Diff(s, again, cmp.Comparer(func(a,
		b fmt.Stringer) bool {
		return a.String() == b.String()
	})); err != nil || diff != "" {
		t.Errorf("not the same twice: %v\n%s", err, diff)
	}
	check(t, s, nodes)
	var b strings.Builder
	s.WriteText(&b)
	return b.String()
}

// check checks what must be true for every divided lane.
func check(t *testing.T, s *split.Split, nodes []numa.Node) {
	t.Helper()
	of := map[int]numa.Node{}
	taken := map[int]int{}
	for _, n := range nodes {
		of[n.ID] = n
	}
	paths := map[string]bool{}
	for _, x := range s.Instances {
		home := map[int]bool{}
		for _, cpu := range of[x.Node].CPUs {
			home[cpu] = true
		}
		for _, cpu := range append(append([]int{}, x.CPUs...), x.Polling...) {
			if !home[cpu] {
				t.Errorf("instance %d: processor %d is not online on node %d", x.Index, cpu, x.Node)
			}
		}
		for _, cpu := range x.CPUs {
			if other, ok := taken[cpu]; ok {
				t.Errorf("processor %d is instance %d's and %d's", cpu, other, x.Index)
			}
			taken[cpu] = x.Index
		}
		for _, m := range x.Mems {
			if of[m].Memory == 0 {
				t.Errorf("instance %d: node %d has no memory", x.Index, m)
			}
		}
		for _, p := range x.Storage {
			if paths[p] {
				t.Errorf("%s is two instances'", p)
			}
			paths[p] = true
		}
	}
	if _, err := config.Parse("divided", []byte(s.File)); err != nil {
		t.Errorf("the lanes file is wrong: %v\n%s", err, s.File)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	if to, ok := strings.CutPrefix(text, "-> "); ok {
		must.Do(t, os.Symlink(strings.TrimSpace(to), name))
		return
	}
	must.Do(t, os.WriteFile(name, []byte(text), 0o644))
}

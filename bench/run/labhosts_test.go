// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/niclane/niclane/lab"
)

// A server that has dropped its rights reads its files and writes its own, and
// neither reads the keys nor puts files in the place of others.
func TestLabFiles(t *testing.T) {
	s := InLab(parse(t), "niclane", "niclane-bench").(*labSite)
	s.dir = filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.makeScratch(); err != nil {
		t.Fatal(err)
	}
	for name, private := range map[string]bool{"conf/server": false, keyFile: true} {
		if err := s.put(context.Background(), lab.SUT, name, []byte(name), private); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]os.FileMode{
		"": 0o711, "scratch": os.ModeSticky | 0o777, "scratch/conf": 0o755, "scratch/conf/server": 0o644,
		"scratch/" + keyFile: 0o600,
	} {
		st, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode() &^ os.ModeDir; got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

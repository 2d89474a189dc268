// SPDX-License-Identifier: Apache-2.0

package privatedir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestForeign checks which existing directories each function takes, and that a refused one keeps
// its owner and its mode.
func TestForeign(t *testing.T) {
	const nobody = 65534
	for _, c := range []struct {
		name        string
		owner       int
		mode        os.FileMode
		link        bool
		make, claim error
	}{
		{name: "own", mode: 0o700},
		{name: "readable by others", mode: 0o755, make: unix.EPERM},
		{name: "of another user", owner: nobody, mode: 0o700, make: unix.EPERM, claim: unix.EPERM},
		{name: "a link", mode: 0o700, link: true, make: unix.ENOTDIR, claim: unix.ENOTDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a directory to another user")
			}
			for _, f := range []struct {
				name string
				call func(string) error
				want error
			}{{"Make", Make, c.make}, {"Claim", Claim, c.claim}} {
				dir := filepath.Join(t.TempDir(), "dir")
				must.Do(t, os.Mkdir(dir, c.mode))
				must.Do(t, os.Chmod(dir, c.mode))
				if c.owner != 0 {
					must.Do(t, os.Chown(dir, c.owner, c.owner))
				}
				path := dir
				if c.link {
					path = dir + "-link"
					must.Do(t, os.Symlink(dir, path))
				}
				if err := f.call(path); !errors.Is(err, f.want) {
					t.Errorf("%s: got %v, want %v", f.name, err, f.want)
				}
				var st unix.Stat_t
				must.Do(t, unix.Stat(dir, &st))
				want := c.mode
				if f.want == nil {
					want = 0o700
				}
				if os.FileMode(st.Mode&0o777) != want || (c.owner != 0 && int(st.Uid) != c.owner) {
					t.Errorf("%s: mode %#o, owner %d, want mode %#o", f.name, st.Mode&0o777, st.Uid, want)
				}
			}
		})
	}
}

// TestMake checks what Make creates.
func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "dir")
	if _, err := Open(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of nothing: %v", err)
	}
	must.Do(t, Make(dir))
	for _, d := range []string{dir, filepath.Dir(dir)} { // Make takes both another time
		var st unix.Stat_t
		must.Do(t, unix.Stat(d, &st))
		if st.Mode&0o777 != 0o700 {
			t.Errorf("%s: mode %#o", d, st.Mode&0o777)
		}
		must.Do(t, Make(d))
	}
}

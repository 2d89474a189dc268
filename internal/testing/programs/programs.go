// SPDX-License-Identifier: Apache-2.0

// Package programs builds niclane and niclane-bench for tests that run them as users do.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
)

// built is the environment variable with the path of niclane, if it is built already. niclane-bench
// is in the same directory. A guest has no Go toolchain, so tests there need it.
const built = "NICLANE_BINARY"

// Build builds programs into dir, each under its own name, with the same result as make.
func Build(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		to := filepath.Join(dir, name)
		if niclane := os.Getenv(built); niclane != "" {
			program, err := os.ReadFile(filepath.Join(filepath.Dir(niclane), name))
			if err == nil {
				err = os.WriteFile(to, program, 0o755)
			}
			must.Do(t, err)
			continue
		}
		build(t, to, name)
	}
}

// Niclane builds niclane in a temporary directory of the test and returns its path.
func Niclane(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	Build(t, dir, program.Niclane)
	return filepath.Join(dir, program.Niclane)
}

// Readable builds programs in a temporary directory that all users can read. It returns the
// directory.
func Readable(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		must.Do(t, os.Chmod(d, 0o755))
	}
	Build(t, dir, names...)
	return dir
}

func build(t testing.TB, to, name string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", to, "./cmd/"+name)
	cmd.Dir, cmd.Env = filepath.Join(filepath.Dir(here), "../../.."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/%s: %v\n%s", name, err, out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package systemctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestRun runs other programs in systemctl's place.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		return path
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("interrupted"))
	for _, c := range []struct {
		name, path string
		ctx        context.Context
		limit      time.Duration
		out, err   string
	}{
		{name: "prints", path: program("prints", "echo $1; echo"), out: "show"},
		{name: "fails", path: program("fails", "echo half; echo no such unit >&2; exit 4"), out: "half",
			err: "systemctl show: exit status 4: no such unit"},
		{name: "fails in silence", path: program("silent", "exit 4"), err: "systemctl show: exit status 4"},
		{name: "hangs", path: program("hangs", "exec sleep 600"), limit: 50 * time.Millisecond,
			err: "systemctl show: it took longer than 50ms"},
		{name: "interrupted", path: program("slow", "exec sleep 600"), ctx: ended,
			err: "systemctl show: interrupted"},
		{name: "is not there", path: filepath.Join(dir, "none"), err: "systemctl: file does not exist in "},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, limit := c.ctx, c.limit
			if ctx == nil {
				ctx = t.Context()
			}
			if limit == 0 {
				limit = time.Minute
			}
			out, err := run(ctx, limit, []string{filepath.Join(dir, "neither"), c.path}, []string{"show", "x"})
			if out != c.out || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%q, %v, want %q, %s", out, err, c.out, c.err)
			}
			if c.name == "is not there" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v is not os.ErrNotExist", err)
			}
		})
	}
}

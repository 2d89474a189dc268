// SPDX-License-Identifier: Apache-2.0

package adqsetup_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/migrate/adqsetup"
)

// FuzzConvert checks that Convert does not panic and returns the same result twice. Each error must
// be one line, with a line number inside the file. Package config must accept the result. In it,
// each note must be on a line of its own.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		ar, err := txtar.ParseFile(name)
		must.Do(f, err)
		f.Add(ar.Files[0].Data, "")
		f.Add(ar.Files[0].Data, "eth0")
	}
	f.Add([]byte("[globals]\ndev=on\n[null]\nqueues=1\nports=1\n[1e3]\nqueues=1\nports=2\n[0x1]\nqueues=1\nports=3"),
		"")
	f.Add([]byte(`{"globals":{"dev":"a\nb"},"a\u0000b":{"queues":"1\n","ports":"1"}}`), "1")
	f.Fuzz(func(t *testing.T, data []byte, dev string) {
		res, err := adqsetup.Convert("adq.conf", dev, data)
		again, err2 := adqsetup.Convert("adq.conf", dev, data)
		if diff := cmp.Diff(res, again, cmpopts.IgnoreUnexported(adqsetup.Result{})); diff != "" {
			t.Fatalf("two answers (-first +second):\n%s", diff)
		}
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("two answers: %v; %v", err, err2)
		}
		if err != nil {
			var errs config.Errors
			if !errors.As(err, &errs) || len(errs) == 0 || res != nil {
				t.Fatalf("got %T %v and %v, want config.Errors alone", err, err, res)
			}
			lines := strings.Count(string(data), "\n") + 1
			for _, e := range errs {
				if e.Line < 1 || e.Line > lines || strings.ContainsAny(e.Error(), "\n\r") {
					t.Errorf("file of %d lines: %q", lines, e.Error())
				}
			}
			return
		}
		in, err := config.Parse("lanes.yaml", []byte(res.Lanes))
		if err != nil {
			t.Fatalf("%v\n%s", err, res.Lanes)
		}
		if len(in.Lanes) == 0 || len(in.Lanes) > 15 {
			t.Errorf("%d lanes\n%s", len(in.Lanes), res.Lanes)
		}
		if given := strings.TrimSpace(dev); given != "" && given != "auto" &&
			(len(in.Group.Devices) != 1 || in.Group.Devices[0] != given) {
			t.Errorf("devices %q, want %q", in.Group.Devices, given)
		}
		comments := 0
		for line := range strings.Lines(res.Lanes) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				comments++
			}
		}
		if comments != 1+len(res.Notes) {
			t.Errorf("%d comments for %d notes\n%s", comments, len(res.Notes), res.Lanes)
		}
	})
}

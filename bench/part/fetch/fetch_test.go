// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/servetest"
)

func TestRun(t *testing.T) {
	s, err := httpserver.Listen(httpserver.Config{Address: "127.0.0.1:0", Origin: true})
	if err != nil {
		t.Fatal(err)
	}
	stop := servetest.Start(t, s.Serve)
	c := Config{Address: s.Addr().String(), Objects: []Object{{Path: "/1000/$n", Copies: 20, Bytes: 1000},
		{Path: "/7", Bytes: 7}}}
	got, err := Run(t.Context(), c)
	if err != nil || got != (Result{21, 20007}) {
		t.Errorf("%+v, %v; want 21 objects, 20007 bytes", got, err)
	}
	c.Passes = 2
	if got, err := Run(t.Context(), c); err != nil || got != (Result{42, 40014}) {
		t.Errorf("twice: %+v, %v", got, err)
	}
	c.Passes, c.Objects[1].Bytes = 1, 8
	if _, err := Run(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "/7: status 200 and 7 bytes, want 200 and 8") {
		t.Errorf("an object of another length: %v", err)
	}
	if r := stop(); r.Requests < 22 {
		t.Errorf("the server had %d requests", r.Requests)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

type part struct {
	Queues []int          `json:"queues"`
	Names  map[string]any `json:"names"`
}

type document struct {
	part
	Lists   [][]int         `json:"lists"`
	Notes   []string        `json:"notes,omitempty"`
	Pointer *part           `json:"pointer"`
	Absent  *part           `json:"absent"`
	Map     map[string]part `json:"map,omitempty"`
	Any     any             `json:"any"`
	Text    []byte          `json:"text,omitempty"`
	Pair    [2]part         `json:"pair"`
	When    time.Time       `json:"when"`
	Addr    netip.Addr      `json:"addr,omitzero"`
	Hidden  []int           `json:"-"`
	private []int
}

func TestListsAreNeverNull(t *testing.T) {
	p := part{}
	d := document{Lists: [][]int{nil, {1}}, Pointer: &p, Map: map[string]part{"a": {}}, Any: []part{{}}}
	var out bytes.Buffer
	a := App{Stdout: &out}
	must.Do(t, a.PrintJSONLine(d))
	const none = `"queues":[],"names":{}`
	want := `{` + none + `,"lists":[[],[1]],"pointer":{` + none + `},"absent":null,"map":{"a":{` + none + `}},` +
		`"any":[{` + none + `}],"pair":[{` + none + `},{` + none + `}],"when":"0001-01-01T00:00:00Z"}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
	if p.Queues != nil || d.Lists[0] != nil || d.private != nil || d.Map["a"].Names != nil {
		t.Error("PrintJSON changed what it printed")
	}
	out.Reset()
	must.Do(t, a.PrintJSON([]part(nil)))
	if out.String() != "[]\n" {
		t.Errorf("a list without items is %s", out.String())
	}
}

// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/schematest"
)

var update = flag.Bool("update", false, "write docs/selftest.schema.json")

// published is the schema that is published for selftest.json.
var published = schematest.Record{
	File: "docs/selftest.schema.json", Dirs: []string{"selftest", "lane/device", "lane/plan", "lane/verify",
		"bench/stats"},
	Value: &Record{}, Version: Schema,
	Title: "selftest.json of niclane", Description: "What one selftest of one card showed. Times are in ns, rates " +
		"in bit/s.",
}

// TestSchemaIsCurrent compares the schema with the types. With -update it writes the schema.
func TestSchemaIsCurrent(t *testing.T) {
	t.Chdir("..")
	published.Current(t, *update)
}

// TestSchemaHolds checks that the schema accepts records, and refuses other JSON.
func TestSchemaHolds(t *testing.T) {
	t.Chdir("..")
	holds := published.Holds(t)
	records := map[string]*Record{"full": fixture(), "early": {Schema: Schema}}
	// If NICLANE_SELFTEST names the record of a real card, the schema must accept it too.
	if path := os.Getenv("NICLANE_SELFTEST"); path != "" {
		actual, err := ReadFile(path)
		must.Do(t, err)
		records["real"] = actual
	}
	for name, r := range records {
		var b bytes.Buffer
		must.Do(t, Write(&b, r))
		if err := holds(b.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var b bytes.Buffer
	must.Do(t, Write(&b, fixture()))
	for old, next := range map[string]string{`"niclane.selftest/1"`: `"niclane.selftest/0"`, `"outcome"`: `"outcomes"`,
		`"cpus": 0`: `"cpus": "0"`} {
		changed := bytes.Replace(b.Bytes(), []byte(old), []byte(next), 1)
		if bytes.Equal(changed, b.Bytes()) {
			t.Fatalf("no %s in the record", old)
		}
		if holds(changed) == nil {
			t.Errorf("%s in the place of %s holds", next, old)
		}
	}
}

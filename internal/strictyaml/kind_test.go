// SPDX-License-Identifier: Apache-2.0

package strictyaml_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/strictyaml"
)

// reads checks a kind with good and bad texts. good has the value of each text, as fmt prints
// it; bad has the message about each text.
func reads[T any](t *testing.T, k strictyaml.Kind[T], good, bad map[string]string) {
	t.Helper()
	read := func(text string) (got T, r *strictyaml.Reader) {
		r = strictyaml.NewReader("f")
		v, ok := r.Document([]byte("x: "+text+"\n"), "x")
		if !ok {
			t.Fatalf("%s: %v", text, r.Errors())
		}
		key := strictyaml.Of("x", k, "", "", func(p *T, x T) { *p = x })
		strictyaml.Section(v, []strictyaml.Key[T]{key}, "x", &got)
		return got, r
	}
	for text, want := range good {
		if got, r := read(text); fmt.Sprint(got) != want || r.Errors() != nil {
			t.Errorf("%s: got %v, %v, want %s", text, got, r.Errors(), want)
		}
	}
	for text, want := range bad {
		if got, r := read(text); r.Errors().Error() != "f:1: x"+want {
			t.Errorf("%s: got %v and\n%v, want\nf:1: x%s", text, got, r.Errors(), want)
		}
	}
}

func TestDuration(t *testing.T) {
	const want = "want a time from 1us to 2h with its unit: us, ms, s, min or h"
	reads(t, strictyaml.Duration(time.Microsecond, 2*time.Hour), map[string]string{
		"50us": "50000", "2.5s": "2500000000", `"1m"`: "60000000000", "2h": "7200000000000", "0.001ms": "1000",
	}, map[string]string{
		"10":            ": found 10, a number without a unit, " + want,
		"0":             ": found 0, " + want,
		"0us":           `: found "0us", ` + want,
		"2h1m":          `: found "2h1m", ` + want,
		"121m":          `: found "121m", ` + want,
		"-1s":           `: found "-1s", ` + want,
		"1 s":           `: found "1 s", ` + want,
		"[1s]":          ": found a list, " + want,
		"999999999999h": `: found "999999999999h", ` + want,
	})
	for ns, want := range map[int64]string{0: "0us", 1500: "1.5us", 1e6: "1ms", 2500e6: "2500ms", 90e9: "90s",
		7200e9: "2h", 3: "0.003us"} {
		if got := strictyaml.DurationText(ns); got != want {
			t.Errorf("DurationText(%d) = %s, want %s", ns, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	const want = "want bytes from 1 to 1 GiB, as a number or with a unit: KB, MB, GB, TB (1000) or KiB, MiB, GiB, " +
		"TiB (1024)"
	reads(t, strictyaml.Size(1, 1<<30), map[string]string{
		"1": "1", "64 KiB": "65536", "1.5MiB": "1572864", `"7B"`: "7", "1GiB": "1073741824",
		"10 KB": "10000", "4MB": "4000000", "1.073741 GB": "1073741000",
	}, map[string]string{
		"0":       ": found 0, " + want,
		"2 GiB":   `: found "2 GiB", ` + want,
		"0.3 KiB": `: found "0.3 KiB", ` + want, // not a whole number of bytes
		`"64"`:    `: found "64", ` + want,
		"64k":     `: found "64k", want the unit as KB (1000 bytes) or KiB (1024 bytes), or the bytes as a number`,
		"1 mb":    `: found "1 mb", want the unit as MB (1000000 bytes), or the bytes as a number`,
		"2 TB":    `: found "2 TB", ` + want,
		"1 mib":   `: found "1 mib", want the unit as MiB (1048576 bytes), or the bytes as a number`,
		"1 Mbit":  `: found "1 Mbit", "Mbit" is not a unit, ` + want,
		"010":     ": found 010, " + want,
	})
}

func TestNumberAndShare(t *testing.T) {
	const number = "want a number from 0.5 to 99.999"
	reads(t, strictyaml.Number(0.5, 99.999), map[string]string{"1": "1", "99.9": "99.9", "0.5": "0.5"},
		map[string]string{
			"0.4": ": found 0.4, " + number, "1e1": `: found "1e1", ` + number, `"5"`: `: found "5", ` + number,
			".nan": ": found .nan, " + number, "-1": ": found -1, " + number,
		})
	const share = "want a share from 0.1% to 95% in steps of 0.1%"
	reads(t, strictyaml.Share(1, 950), map[string]string{"12.5%": "125", "95 %": "950", "0.1%": "1"}, map[string]string{
		"0.5": ": found 0.5, " + share, "0.05%": `: found "0.05%", ` + share, "96%": `: found "96%", ` + share,
	})
}

func TestSeries(t *testing.T) {
	const want = "want a rate from 1 to 9000, a list of them in ascending order, or {from: , to: , step: }"
	reads(t, strictyaml.Series("a rate", 1, 9000, 50), map[string]string{
		"7": "[7]", "[1, 5, 9]": "[1 5 9]", "{from: 110, to: 440, step: 110}": "[110 220 330 440]",
	}, map[string]string{
		"many":                            `: found "many", ` + want,
		"[]":                              ": found an empty list, " + want,
		"[5, 5]":                          "[1]: found 5 after 5, want ascending order",
		"[a]":                             `[0]: found "a", want an integer from 1 to 9000`,
		"{from: 1, to: 10, step: 4}":      ": found steps of 4, which do not lead from 1 to 10, want to: 9 or 13",
		"{from: 1, to: 9000, step: 1}":    ": found 9000 steps, want at most 50",
		"{from: 9, to: 9, step: 1}":       ": found from 9 to 9, want to above from",
		"{from: 1, step: 1}":              ": to is missing, want {from: , to: , step: }",
		"{from: 0, to: 5, step: 1}":       ".from: found 0, want an integer from 1 to 9000",
		"{from: 1, to: 5, step: 1, a: 1}": ".a: unknown key, want one of from to step",
	})
}

func TestPath(t *testing.T) {
	const want = "want a key file, relative to this file and below its directory"
	reads(t, strictyaml.Path("a key file"), map[string]string{"a.pem": "a.pem", "pki/a..b": "pki/a..b",
		"./a/../b": "./a/../b"}, map[string]string{
		"/etc/a":    `: found "/etc/a", an absolute path, ` + want,
		"../a":      `: found "../a", which leaves that directory, ` + want,
		"a/../../b": `: found "a/../../b", which leaves that directory, ` + want,
		"a/..":      `: found "a/..", which is a directory, ` + want,
		"~/a":       `: found "~/a", which no shell reads, ` + want,
		"5":         ": found 5, which YAML takes for a number or a truth value; want quotes around it",
		`"a\tb"`:    `: found "a\tb", ` + want,
	})
}

func TestMapping(t *testing.T) {
	words := strictyaml.Mapping("a mapping of words", `^[a-z]+$`, "small letters", strictyaml.Text("a word", 4))
	reads(t, words, map[string]string{"{a: b, c: 010}": "map[a:b c:010]", "{a: yes}": "map[a:yes]"}, map[string]string{
		"{}":           ": found a mapping, want a mapping of words",
		"{A: b}":       `.A: found the name "A", want small letters`,
		"{a: b, a: c}": ".a: given a second time, first in line 1",
		"{a: [b]}":     ".a: found a list, want a word",
		"{a: bcdef}":   ".a: found a text of 5 bytes, want at most 4",
	})
}

func TestLists(t *testing.T) {
	word := strictyaml.Text("a word", 4)
	reads(t, strictyaml.Texts("a list of words", 3, word), map[string]string{"[a, 1, on]": "[a 1 on]"},
		map[string]string{
			"a":            `: found "a", want a list of words`,
			"[]":           ": found an empty list, want a list of words",
			"[a, b, c, d]": ": found 4, want at most 3",
			"[a, {}]":      "[1]: found a mapping, want a word",
		})
	reads(t, strictyaml.OneOrList(word, 2), map[string]string{"a": "[a]", "[a, b]": "[a b]"}, map[string]string{
		"[]":        ": found a list of 0, want 1 to 2",
		"[a, b, c]": ": found a list of 3, want 1 to 2",
	})
	dishes := strictyaml.Sections("dish", "a list of dishes", 2, dishKeys,
		func(strictyaml.Value) dish { return dish{Serves: 1} })
	reads(t, dishes, map[string]string{"[{name: soup}, {serves: 2}]": "[{soup 1 []} { 2 []}]"}, map[string]string{
		"{name: soup}": ": found a mapping, want a list of dishes",
		"[soup]":       `[0]: found "soup", want a mapping of keys: name, serves, at-course`,
		"[{}, {}, {}]": ": found 3, want at most 2",
	})
}

// TestFailLine: a problem within a text has the line of the file, if it is known.
func TestFailLine(t *testing.T) {
	for text, want := range map[string]string{
		"x: |\n\n  one\n  two\n": "f:4: x: wrong",
		"x: |-\n  one\n  two\n":  "f:4: x: wrong",
		"# c\nx: >\n  a\n  b\n":  "f:2: x: line 3: wrong",
		"x: \"a\\nb\\nc\"\n":     "f:1: x: line 3: wrong",
	} {
		r := strictyaml.NewReader("f")
		v, _ := r.Document([]byte(text), "x")
		key := strictyaml.Key[struct{}]{Name: "x",
			Read: func(v strictyaml.Value, _ *struct{}) { v.FailLine(3, "wrong") }}
		strictyaml.Section(v, []strictyaml.Key[struct{}]{key}, "x", &struct{}{})
		if diff := cmp.Diff(want, r.Errors().Error()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/config"
)

func TestLocate(t *testing.T) {
	const text = `# a comment
version: 1
globals:
  dev: eth0
  FORCE:
    queue-set: rss-context
lanes:
  redis:
    queues: 2
    mode: shared
    Poller_Timeout: 50us
    members:
      - name: a
        ports:
          - 6379
          - 6380
      - {ports: 7000,
         addrs: [10.0.0.1,
                 10.0.0.2]}
  web: {queues: 1,
        ports: 80}
`
	f, err := config.ParseFile("etc/lanes.yaml", []byte(text))
	must.Do(t, err)
	for path, want := range map[string]int{
		"":                                1,
		"version":                         2,
		"globals":                         3,
		"globals.dev":                     4,
		"globals.link-rate":               3, // not in the file: the line of the enclosing section
		"globals.force.queue-set":         6,
		"globals.force.poller":            5,
		"lanes":                           7,
		"lanes.redis":                     8,
		"lanes.redis.cpus":                8,
		"lanes.redis.poller-timeout":      11,
		"lanes.redis.members":             12,
		"lanes.redis.members[0]":          13,
		"lanes.redis.members[0].cgroup":   13,
		"lanes.redis.members[0].ports":    14,
		"lanes.redis.members[0].ports[1]": 16,
		"lanes.redis.members[1]":          17,
		"lanes.redis.members[1].addrs[1]": 19,
		"lanes.redis.members[9].ports":    12,
		"lanes.web":                       20,
		"lanes.web.ports":                 21,
		"lanes.none.ports":                7,
		"nowhere":                         1,
	} {
		if file, line := f.Locate(path); file != "etc/lanes.yaml" || line != want {
			t.Errorf("Locate(%q) = %s:%d, want etc/lanes.yaml:%d", path, file, line, want)
		}
	}
	got := f.Problem("lanes.web.queues", "1 requested, 0 free").Error()
	if want := "etc/lanes.yaml:20: lanes.web.queues: 1 requested, 0 free"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, l := range f.Intent.Lanes {
		for _, m := range l.Members {
			if _, line := f.Locate(m.Path); line < 8 {
				t.Errorf("member %s is in line %d", m.Path, line)
			}
		}
	}
}

// many returns head, n times item, and tail. Tests use it for texts at a limit and above it.
func many(head, item string, n int, tail string) string {
	return head + strings.Repeat(item, n) + tail
}

// TestLimits checks that a hostile file gets one short error. Without the limits, some of these
// files would take minutes, or more memory than a machine has.
func TestLimits(t *testing.T) {
	const head = "version: 1\nglobals: {dev: eth0}\nlanes: {a: {queues: 1, mode: shared, "
	for name, c := range map[string]struct{ text, want string }{
		"size":     {many("#", "x", 512<<10, ""), "lanes.yaml:1: found a file of 524289 bytes, want at most 524288"},
		"brackets": {many("", "[", 500_000, ""), "lanes.yaml:1: found more than 16 brackets within each other"},
		"braces":   {many("", "{a: ", 100_000, ""), "lanes.yaml:1: found more than 16 brackets within each other"},
		"dashes": {many("", "- ", 250_000, "x"),
			"lanes.yaml:1: found column 129, want indentation of at most 128"},
		"questions": {many("", "? ", 250_000, "x"),
			"lanes.yaml:1: found column 129, want indentation of at most 128"},
		"keys": {many("", "a: 1\n", 100_000, ""), "lanes.yaml:2049: found more than 2048 keys in one mapping"},
		"inner keys": {many("a:\n", " b:\n  c: 1\n", 40_000, ""),
			"lanes.yaml:4098: found more than 2048 keys in one mapping"},
		"flow keys": {many("{", "a: 1,", 100_000, "}"), "lanes.yaml:1: found more than 2048 keys in one mapping"},
		"documents": {many("", "---\na\n", 80_000, ""),
			"lanes.yaml:3: found a second document, want one document per file"},
		"members": {many(head+"members: [", "{ports: 1},", 40_000, "]}}"),
			"lanes.yaml:3: lanes.a.members: brings the file to 40000 members, want at most 4096"},
		"port ranges": {many(head+"ports: [", "1-1024,", 60_000, "]}}"),
			"lanes.yaml:3: lanes.a.ports[1]: found 1 twice in one list"},
		"ports": {many(head+"members: [", "{ports: 1-65535},", 4096, "]}}"),
			"lanes.yaml:3: lanes.a.members[16]: brings the file to 1114095 ports, want at most 1048576"},
		"patterns": {head + "ports: 1-1024, remote-ports: 1-1024}}",
			"lanes.yaml:3: lanes.a: brings the file to 2097152 combinations of own and remote port and address, " +
				"want at most 65536"},
		"cpus": {"version: 1\nglobals: {dev: eth0, cpus: 0-4000000000}\nlanes: {a: {queues: 1, ports: 1}}",
			`lanes.yaml:2: globals.cpus: found "0-4000000000", want a processor from 0 to 8191`},
		"digits": {"version: 1\nglobals: {dev: eth0, queues: " + strings.Repeat("9", 100_000) +
			"}\nlanes: {a: {queues: 1, ports: 1}}",
			`lanes.yaml:2: globals.queues: found "` + strings.Repeat("9", 60) + `...", want an integer from 1 to 1024`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("lanes.yaml", []byte(c.text))
			var errs config.Errors
			if !errors.As(err, &errs) {
				t.Fatalf("got %v", err)
			}
			if got := errs[0].Error(); got != c.want {
				t.Errorf("got %.300s\nwant %.300s", got, c.want)
			}
		})
	}
}

// TestLargeFile parses a file for a host with one member per container.
func TestLargeFile(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\nglobals: {dev: eth0}\nlanes:\n")
	for lane := range 15 {
		fmt.Fprintf(&b, "  lane%d:\n    mode: shared\n    queues: 4\n    members:\n", lane)
		for m := range 200 {
			fmt.Fprintf(&b, "      - name: m%d\n        ports: [%d, %d]\n        addrs: [10.0.%d.1, fd00::%d]\n     "+
				"   cgroup: /kubepods/lane%d/pod%d\n",
				m, 1000+m, 2000+m, lane, lane+1, lane, m)
		}
	}
	in, err := config.Parse("lanes.yaml", []byte(b.String()))
	must.Do(t, err)
	members := 0
	for _, l := range in.Lanes {
		members += len(l.Members)
	}
	if members != 3000 {
		t.Errorf("got %d members, want 3000", members)
	}
}

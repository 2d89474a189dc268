// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"slices"

	"github.com/niclane/niclane/internal/strictyaml"
)

// Keys of adqsetup 2.0.2 (its ConfigGlobals and ConfigSection), written with - in place of _.
// min-rate and max-rate are from version 2.1, which is in the source of Intel's driver.
var (
	globalNames = []string{
		"dev", "queues", "cpus", "numa", "optimize", "bpstop", "bpstop-cfg", "busypoll", "busyread",
		"rxadapt", "txadapt", "rxusecs", "txusecs", "rxring", "txring", "arpfilter", "priority",
		"min-rate", "max-rate",
	}
	sectionNames = []string{
		"mode", "queues", "pollers", "poller-timeout", "protocol", "ports", "addrs", "remote-ports", "remote-addrs",
		"cpus", "numa", "min-rate", "max-rate",
	}
)

// check reports the keys of a section that adqsetup would ignore. It returns true if there are
// none.
func (s *section) check(r *strictyaml.Reader) bool {
	known, other, where := sectionNames, globalNames,
		"is a key of [globals], and adqsetup ignores it here; want it there"
	if s.name == globals {
		known, other, where = globalNames, sectionNames,
			"is a key of applications, and adqsetup ignores it here; want it in an application's section"
	}
	ok := true
	for _, it := range s.items {
		path := strictyaml.Join(s.name, it.name)
		switch {
		case slices.Contains(known, it.name):
			continue
		case slices.Contains(other, it.name):
			fail(r, it.line, path, "%s", where)
		case it.name == "mac": // since adqsetup 2.1; niclane has no equivalent
			fail(r, it.line, path, "not supported: niclane matches packets by address and port; write addrs")
		default:
			fail(r, it.line, path, "unknown key, which adqsetup ignores%s", strictyaml.Suggest(it.name, known))
		}
		ok = false
	}
	return ok
}

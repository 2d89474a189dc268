// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// maxProcessor is the highest processor number that a lanes file can have.
const maxProcessor = 8191

// processors writes the keys cpus and numa of a section.
func (c *converter) processors(indent int, lane string, s *section) {
	cpus, ok := s.get("cpus")
	if ok {
		items, twice := numbers(cpus.text, maxProcessor)
		if len(twice) > 0 {
			c.note(indent, cpus.line, strictyaml.Join(s.name, "cpus"), "found %s twice, once is enough",
				strings.Join(twice, ", "))
		}
		c.key(indent, cpus, "cpus", flow(items))
	}
	if it, ok := s.get("numa"); ok {
		if _, integer := number(it.text); integer {
			c.note(indent, it.line, strictyaml.Join(s.name, "numa"),
				"adqsetup documents node numbers and fails on them; here they work")
		} else if strings.EqualFold(it.text, "all") && lane != globals {
			c.note(indent, it.line, strictyaml.Join(s.name, "numa"), "adqsetup takes processors of the card's node "+
				"first. With all, niclane takes processors in the order of their numbers; with local, only that node's")
		}
		c.key(indent, it, "numa", scalar(strings.ToLower(it.text)))
	}
}

// rateKeys pairs adqsetup's keys for rates with niclane's.
var rateKeys = [][2]string{{"min-rate", "guarantee"}, {"max-rate", "ceiling"}}

// mostRate is the largest rate that a lanes file can have, in Mbit/s.
const mostRate = 10_000_000

// rates writes min-rate and max-rate, which are in Mbit/s. In adqsetup, 0 means no rate, because
// the kernel treats 0 in this way for a traffic class.
func (c *converter) rates(indent int, s *section) {
	for _, k := range rateKeys {
		it, ok := s.get(k[0])
		if !ok {
			continue
		}
		path := strictyaml.Join(s.name, k[0])
		switch n, ok := number(it.text); {
		case !ok || n > mostRate:
			fail(c.Reader, it.line, path, "found %s, want Mbit/s, an integer up to %d, or 0 for none",
				strictyaml.Quote(it.text), mostRate)
		case n == 0:
			c.note(indent, it.line, path, "0 means no rate in adqsetup; left out")
		default:
			c.note(indent, it.line, path, "Mbit/s; adqsetup before 2.1 ignores it")
			c.key(indent, it, k[1], strconv.Itoa(n)+"mbit")
		}
	}
}

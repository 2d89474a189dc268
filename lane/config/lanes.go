// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// version is the version of the file format.
const version = 1

// Limits of one file. In the worst case, the check for overlaps compares each member with every
// other one. Every pattern becomes a rule or a map entry.
const (
	maxMembers  = 4096
	maxPatterns = 1 << 16
	// maxPorts is the largest number of ports of all members together. It keeps the check for
	// overlaps fast.
	maxPorts = 1 << 20
)

const (
	topWant     = "version, globals and lanes"
	globalsWant = "a mapping of keys: dev, queues, ..."
	lanesWant   = "a mapping from lane names to lanes"
	laneWant    = "a mapping of keys: queues, ports, ..."
	membersWant = "a list of members"
	memberWant  = "a mapping of keys: name, ports, ..."
)

// topKeys are the sections of a file. The reader reads globals first, even if it comes last in
// the file, because lanes take values from it.
func topKeys() []key {
	return []key{
		{Name: "version", Want: "1", Doc: "Version of the file format.", Preset: "required",
			Schema: strictyaml.Schema{"const": version}},
		{Name: "globals", Want: "a mapping", Doc: "The devices, the host, and the default lane.",
			Preset: "required",
			Schema: strictyaml.Schema{"$ref": "#/$defs/globals"}},
		{Name: "lanes", Want: lanesWant, Doc: "The lanes by name, in the order of their queues.",
			Preset: "required",
			Schema: strictyaml.Schema{"$ref": "#/$defs/lanes"}},
	}
}

// A reader reads one file into an intent.
type reader struct {
	*strictyaml.Reader
	// unsure has the paths of members that were read incompletely, and of members that match every
	// packet. Checks skip them, because it is not known which packets they match.
	unsure map[string]bool
	// empty has the paths of member lists without a member.
	empty   map[string]bool
	members int // seen so far
	ports   int // ports of these members
	in      intent.Intent
}

// A target has the structs to which the keys of a section write their values.
type target struct {
	r      *reader
	group  *intent.Group
	lane   *intent.Lane
	member *intent.Member
}

// section reads a mapping with the given keys into t. It reports whether v is a mapping.
func (r *reader) section(v strictyaml.Value, keys []key, want string, t *target) bool {
	t.r = r
	bad, ok := strictyaml.Section(v, keys, want, t)
	for _, name := range bad {
		if strictyaml.Find(keys, name) == nil || slices.Contains(matchNames(), name) {
			r.unsure[v.Path()] = true
		}
	}
	return ok
}

// top reads the whole document.
func (r *reader) top(v strictyaml.Value) {
	r.in.Group = intent.Group{}
	r.in.Default = intent.Lane{Name: intent.DefaultLane, Path: "globals"}
	found := map[string]strictyaml.Value{}
	keys := topKeys()
	for i := range keys {
		keys[i].Read = func(kv strictyaml.Value, _ *target) { found[keys[i].Name] = kv }
	}
	if !r.section(v, keys, topWant, &target{}) {
		return
	}
	if !r.version(v, found) {
		return
	}
	if g, ok := found["globals"]; ok {
		if r.section(g, globalsKeys(), globalsWant, &target{group: &r.in.Group, lane: &r.in.Default}) {
			r.checkGlobals()
		}
	} else if !r.Given("globals") {
		v.Failf("globals is missing, want at least the device: globals: {dev: eth0}")
	}
	if l, ok := found["lanes"]; ok {
		r.lanes(l)
	} else if !r.Given("lanes") {
		v.Failf("lanes is missing, want at least one lane")
	}
	r.check()
}

// version checks the file's version. It reports whether the rest of the file can be read.
func (r *reader) version(v strictyaml.Value, found map[string]strictyaml.Value) bool {
	if !r.Given("version") {
		v.Failf("version is missing, want version: %d", version)
		return true
	}
	ver, ok := found["version"]
	if !ok {
		return true
	}
	text, plain, _ := ver.Scalar()
	if plain && text == fmt.Sprint(version) {
		return true
	}
	ver.Wrong(fmt.Sprintf("%d, the only version that this niclane knows", version))
	return !strictyaml.IsDecimal(text) // a file of another version has other keys
}

var nameExpr = regexp.MustCompile(namePattern)

func (r *reader) lanes(v strictyaml.Value) {
	if !v.IsMapping() {
		v.Wrong(lanesWant)
		return
	}
	entries := v.Entries()
	if len(entries) == 0 {
		v.Failf("found no lane, want at least one; niclane rollback removes lanes")
	}
	for _, e := range entries {
		path := strictyaml.Join(v.Path(), e.Name)
		if first, twice := r.Add(path, e.At); twice {
			r.FailAt(e.At, path, "a second lane of this name, the first in line %d", first.Line)
			continue
		}
		switch {
		case e.Name == intent.DefaultLane:
			r.FailAt(e.At, path,
				"default is the lane of all other packets; write its keys in globals, or choose another name")
			continue
		case !nameExpr.MatchString(e.Name):
			r.FailAt(e.At, path, "found the name %s, want %s", strictyaml.Quote(e.Name), nameWant)
			continue
		}
		if lv, ok := e.Value(path); ok {
			r.lane(e.Name, lv)
		}
	}
}

// lane reads one lane of the file and adds it to the intent.
func (r *reader) lane(name string, v strictyaml.Value) {
	lane := intent.Lane{Name: name, Mode: intent.Exclusive, NUMA: intent.NUMALocal, Path: v.Path()}
	own := intent.Member{Protocol: "tcp", Path: v.Path()}
	if r.ports > maxPorts || !r.section(v, laneKeys(), laneWant, &target{lane: &lane, member: &own}) ||
		!r.countPorts(&own) {
		return
	}
	if !r.Given(v.Path() + ".queues") {
		r.Failf(v.Path(), "queues is missing, want an integer from 1 to %d", maxQueues)
	}
	if r.Given(v.Path() + "." + listName) {
		for _, k := range memberKeys() {
			if path := v.Path() + "." + k.Name; r.Given(path) {
				r.Failf(path, "found beside %s (line %d), want it in each member instead", listName,
					r.Line(v.Path()+"."+listName))
			}
		}
	} else {
		lane.Members = []intent.Member{own}
	}
	r.in.Lanes = append(r.in.Lanes, lane)
}

// membersKey returns the key "members" of a lane.
func membersKey() key {
	return key{
		Name: listName, Want: membersWant, Preset: "the lane itself is its only member",
		Doc: "Members of a shared lane, each with a `name` and the keys under MEMBERS. They replace these keys in " +
			"the lane. With `[]`, niclane makes the lane and steers nothing to it yet.",
		Schema: strictyaml.Schema{"type": "array", "items": strictyaml.Schema{"$ref": "#/$defs/member"}},
		Read:   func(v strictyaml.Value, t *target) { t.r.membersOf(v, t.lane) },
	}
}

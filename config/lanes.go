// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/niclane/niclane/intent"
)

// version of the file format.
const version = 1

// Limits of one file. The check for overlaps compares members pairwise at
// worst; every pattern becomes a rule of the device.
const (
	maxMembers  = 4096
	maxPatterns = 1 << 16
)

const (
	topWant     = "version, globals and lanes"
	globalsWant = "a mapping of keys: dev, queues, ..."
	lanesWant   = "a mapping from lane names to lanes"
	laneWant    = "a mapping of keys: queues, ports, ..."
	membersWant = "a list of members"
	memberWant  = "a mapping of keys: name, ports, ..."
)

// topKeys are the sections of a file, in the order they are read: globals
// first, wherever it stands, because lanes take values from it.
func topKeys() []key {
	return []key{
		{name: "version", want: "1", doc: "Version of the file format.", preset: "has to be given",
			schema: schema{"const": version}},
		{name: "globals", want: "a mapping", doc: "The devices, the host, and the default lane.", preset: "has to be given",
			schema: schema{"$ref": "#/$defs/globals"}},
		{name: "lanes", want: lanesWant, doc: "The lanes by name, in the order of their queues.", preset: "has to be given",
			schema: schema{"$ref": "#/$defs/lanes"}},
	}
}

// top reads the whole document.
func (r *reader) top(root ast.Node) {
	r.in.Group = intent.Group{}
	r.in.Default = intent.Lane{Name: intent.DefaultLane, Path: "globals"}
	v, ok := r.value("", root, position{1, 1})
	if !ok {
		return
	}
	found := map[string]value{}
	keys := topKeys()
	for i := range keys {
		keys[i].read = func(kv value, _ *target) { found[keys[i].name] = kv }
	}
	if !v.section(keys, topWant, nil) {
		return
	}
	if !r.version(v, found) {
		return
	}
	if g, ok := found["globals"]; ok {
		if g.section(globalsKeys(), globalsWant, &target{group: &r.in.Group, lane: &r.in.Default}) {
			r.checkGlobals()
		}
	} else if !r.given("globals") {
		v.failf("globals is missing, want at least the device: globals: {dev: eth0}")
	}
	if l, ok := found["lanes"]; ok {
		l.lanes()
	} else if !r.given("lanes") {
		v.failf("lanes is missing, want at least one lane")
	}
	r.check()
}

// version reports whether the rest of the file can be understood.
func (r *reader) version(v value, found map[string]value) bool {
	if !r.given("version") {
		v.failf("version is missing, want version: %d", version)
		return true
	}
	ver, ok := found["version"]
	if !ok {
		return true
	}
	text, plain, _ := ver.scalar()
	if plain && text == fmt.Sprint(version) {
		return true
	}
	ver.wrong(fmt.Sprintf("%d, the only version that this niclane knows", version))
	return !decimal().MatchString(text) // another version has other keys
}

var nameExpr = lazy(namePattern)

func (v value) lanes() {
	if _, ok := v.node.(*ast.MappingNode); !ok {
		v.wrong(lanesWant)
		return
	}
	entries := v.entries()
	if len(entries) == 0 {
		v.failf("found no lane, want at least one; niclane rollback removes lanes")
	}
	for _, e := range entries {
		path := join(v.path, e.name)
		if first, twice := v.r.at[path]; twice {
			v.r.failAt(e.at, path, "a second lane of this name, the first in line %d", first.line)
			continue
		}
		v.r.at[path] = e.at
		switch {
		case e.name == intent.DefaultLane:
			v.r.failAt(e.at, path, "default is the lane of all other packets; write its keys in globals, or choose another name")
			continue
		case !nameExpr().MatchString(e.name):
			v.r.failAt(e.at, path, "found the name %s, want %s", quote(e.name), nameWant)
			continue
		}
		if lv, ok := v.r.value(path, e.node, e.at); ok {
			v.r.lane(e.name, lv)
		}
	}
}

// lane reads one lane and adds it to the intent.
func (r *reader) lane(name string, v value) {
	lane := intent.Lane{Name: name, Mode: intent.Exclusive, NUMA: intent.NUMALocal, Path: v.path}
	own := intent.Member{Protocol: "tcp", Path: v.path}
	if !v.section(laneKeys(), laneWant, &target{lane: &lane, member: &own}) {
		return
	}
	if !r.given(v.path + ".queues") {
		r.failf(v.path, "queues is missing, want an integer from 1 to %d", maxQueues)
	}
	if r.given(v.path + "." + listName) {
		for _, k := range memberKeys() {
			if path := v.path + "." + k.name; r.given(path) {
				r.failf(path, "found beside %s (line %d), want it in each member instead", listName,
					r.at[v.path+"."+listName].line)
			}
		}
	} else {
		lane.Members = []intent.Member{own}
	}
	r.in.Lanes = append(r.in.Lanes, lane)
}

// membersKey is the list of a lane's members.
func membersKey() key {
	return key{
		name: listName, want: membersWant, preset: "the lane itself is its only member",
		doc:    "Members of a shared lane, each with a `name` and the keys under MEMBERS. Instead of these keys in the lane.",
		schema: schema{"type": "array", "minItems": 1, "items": schema{"$ref": "#/$defs/member"}},
		read: func(v value, t *target) {
			seq, ok := v.node.(*ast.SequenceNode)
			if !ok || len(seq.Values) == 0 {
				v.wrong(membersWant)
				return
			}
			if v.r.members += len(seq.Values); v.r.members > maxMembers {
				v.failf("brings the file to %d members, want at most %d", v.r.members, maxMembers)
				return
			}
			named := map[string]int{}
			for _, item := range v.items() {
				m := intent.Member{Protocol: "tcp", Path: item.path}
				if !item.section(listedKeys(), memberWant, &target{member: &m}) {
					continue
				}
				if first := named[m.Name]; first > 0 && m.Name != "" {
					v.r.failf(item.path+".name", "a second member of this name, the first in line %d", first)
				}
				named[m.Name] = v.r.at[item.path].line
				t.lane.Members = append(t.lane.Members, m)
			}
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strings"

	"github.com/niclane/niclane/internal/strictyaml"
)

// lane writes the lane of an application's section. anyPollers says whether any application in the
// file has pollers.
func (c *converter) lane(name string, s, global *section, anyPollers bool) {
	if !s.check(c.Reader) {
		c.bad[name] = true
	}
	if name == "" {
		c.failf(name, s.line, strictyaml.Join("", s.name),
			"has no letter or digit in its name, want a name for the lane")
		return
	}
	c.out.line(s.line, "  %s:", text(name))
	if name != s.name {
		c.note(2, s.line, strictyaml.Join("", s.name), "lanes have names of a-z 0-9 - _")
	}
	l := &lane{converter: c, name: name, s: s}
	l.mode()
	l.queues()
	l.pollers(anyPollers, global)
	c.processors(2, name, s)
	c.rates(2, s)
	l.moderation(global)
	l.members()
}

// A lane is the lane that is being written.
type lane struct {
	*converter
	name string
	s    *section
	// none is true if the section says nothing about packets.
	none bool
	// both is true if the section gives ports or addresses both of this side and of the other side. In
	// adqsetup, a packet belongs to the application if it matches one of the two sides.
	shared, both bool
}

func (l *lane) path(key string) string { return strictyaml.Join(l.s.name, key) }

func (l *lane) given(names ...string) bool {
	for _, n := range names {
		if _, ok := l.s.get(n); ok {
			return true
		}
	}
	return false
}

func (l *lane) mode() {
	own, remote := l.given("ports", "addrs"), l.given("remote-ports", "remote-addrs")
	l.none = !own && !remote
	l.both = own && remote
	it, ok := l.s.get("mode")
	switch strings.ToLower(it.text) {
	case "shared":
		l.shared = true
		l.note(2, it.line, l.path("mode"), "adqsetup gives each port a queue of its own, niclane spreads the lane's "+
			"connections over its queues; to give each port a queue, write a lane of one queue for each port")
	case "", "exclusive":
		if ok && !l.both && !l.none {
			l.key(2, it, "mode", "exclusive")
		}
	default:
		l.failf(l.name, it.line, l.path("mode"),
			"found %q, which adqsetup takes for exclusive; want exclusive or shared", it.text)
	}
	if l.none {
		l.note(2, l.s.line, strictyaml.Join("", l.s.name), "no ports and no addrs, so adqsetup makes a queue set "+
			"without filters, and another program adds these. Here no packet is the lane's until the lane has a "+
			"member. If Intel's Kubernetes plugins add them for pods: write a LanePolicy "+
			"(docs/how-to/from-adq-k8s-plugins.md)")
	}
	if l.shared || l.both || l.none {
		l.key(2, it, "mode", "shared")
	}
}

func (l *lane) queues() {
	it, ok := l.s.get("queues")
	ports, _ := l.s.get("ports")
	n := 0
	if ports.text != "" {
		items, _ := numbers(ports.text, maxPort)
		n = count(items)
	}
	switch {
	case !ok && l.shared && n > 0:
		l.out.line(ports.line, "    queues: %d", n) // adqsetup's default
		return
	case !ok:
		l.failf(l.name, l.s.line, strictyaml.Join("", l.s.name), "queues is missing, want an integer from 1")
		return
	}
	if q, decimal := number(it.text); l.shared && decimal && q != n && l.given("ports") {
		l.failf(l.name, it.line, l.path("queues"), "found %d with %d ports and mode = shared, which adqsetup "+
			"refuses in the middle of its work; want one queue for each port", q, n)
	}
	l.key(2, it, "queues", scalar(it.text))
}

// pollers writes the lane's poller. In adqsetup, the queues of a section without pollers use
// interrupts or, with busypoll, are polled by the application. If another section has pollers, this
// one gets threads, which are niclane's default.
func (l *lane) pollers(some bool, global *section) {
	timeout, timed := l.s.get("poller-timeout")
	if it, ok := l.s.get("pollers"); ok && it.text != "0" {
		l.key(2, it, "pollers", scalar(it.text))
		if timed {
			l.key(2, timeout, "poller-timeout", scalar(timeout.text))
		}
		return
	}
	if timed {
		l.note(2, timeout.line, l.path("poller-timeout"), "of no effect without pollers, left out")
	}
	switch {
	case some:
	case busy(global):
		l.out.line(l.s.line, "    poller: application")
	default:
		l.out.line(l.s.line, "    poller: interrupt")
	}
}

// busy reports whether globals let sockets poll the device.
func busy(global *section) bool {
	for _, name := range []string{"busypoll", "busyread"} {
		if it, ok := global.get(name); ok && it.text != "0" {
			return true
		}
	}
	return false
}

// moderation writes the interrupt moderation that globals gives. adqsetup sets it only for the
// queues of applications.
func (l *lane) moderation(global *section) {
	for _, name := range []string{"rxadapt", "rxusecs", "txadapt", "txusecs"} {
		it, ok := global.get(name)
		if !ok {
			continue
		}
		value := scalar(it.text)
		if strings.HasSuffix(name, "adapt") {
			on, ok := l.boolean(global, it)
			if !ok {
				continue
			}
			value = onOff(on)
		}
		l.key(2, it, name, value)
	}
}

// members writes which packets belong to the lane. adqsetup makes separate filters for the ports
// and addresses of this side and for those of the other side.
func (l *lane) members() {
	if l.none {
		if it, ok := l.s.get("protocol"); ok {
			l.note(2, it.line, l.path("protocol"), "of no effect without ports, left out")
		}
		l.out.line(l.s.line, "    members: []")
		return
	}
	if !l.both {
		l.match("    ", "ports", "addrs", "remote-ports", "remote-addrs")
		return
	}
	l.note(2, l.s.line, strictyaml.Join("", l.s.name), "adqsetup takes packets that match the local side or "+
		"the remote side, so the lane has two members; one member with both would take packets that match both")
	l.out.line(l.s.line, "    members:")
	l.out.line(l.s.line, "      - name: local")
	l.match("        ", "ports", "addrs")
	l.out.line(l.s.line, "      - name: remote")
	l.match("        ", "remote-ports", "remote-addrs")
}

const maxPort = 65535

func (l *lane) match(indent string, names ...string) {
	if it, ok := l.s.get("protocol"); ok {
		l.out.line(it.line, "%sprotocol: %s", indent, scalar(strings.ToLower(it.text)))
	}
	for _, name := range names {
		it, ok := l.s.get(name)
		if !ok {
			continue
		}
		var items, odd []string
		if strings.HasSuffix(name, "ports") {
			if items, odd = numbers(it.text, maxPort); len(odd) > 0 {
				l.note(len(indent)/2, it.line, l.path(name), "found %s twice, once is enough", strings.Join(odd, ", "))
			}
		} else if items, odd = addresses(it.text); len(odd) > 0 {
			l.note(len(indent)/2, it.line, l.path(name),
				"found %s; the bits after the prefix are cleared, as in the kernel", strings.Join(odd, ", "))
		}
		l.out.line(it.line, "%s%s: %s", indent, name, flow(items))
	}
}

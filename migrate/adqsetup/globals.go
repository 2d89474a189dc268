// SPDX-License-Identifier: Apache-2.0

package adqsetup

import (
	"strings"
	"unicode/utf8"
)

// globals writes the section globals.
func (c *converter) globals(s *section, in Input, apps []section) {
	if !s.check(c.Reader) {
		c.bad[globals] = true
	}
	c.out.line(s.line, "globals:")
	c.device(s, in.Devices)
	if it, ok := s.get("queues"); ok {
		c.key(1, it, "queues", scalar(it.text))
	} else {
		c.note(1, 0, "globals.queues", "not given: adqsetup leaves %d queues to all other traffic, niclane leaves "+
			"all that no lane has", defaultQueues)
	}
	c.processors(1, globals, s)
	c.rates(1, s)
	c.sysctls(s, pollers(apps))
	for _, name := range []string{"rxring", "txring"} {
		if it, ok := s.get(name); ok {
			c.key(1, it, name, scalar(it.text))
		}
	}
	if it, ok := s.get("arpfilter"); ok {
		if on, ok := c.boolean(s, it); ok {
			c.key(1, it, "arpfilter", onOff(on))
		}
	}
	c.priority(s)
	c.privateFlags(s)
}

// device writes the key dev.
func (c *converter) device(s *section, possible []string) {
	it, ok := s.get("dev")
	switch {
	case !utf8.ValidString(it.text):
		c.failf(globals, it.line, globals+".dev", "found %q, want the name of a network device", it.text)
	case ok:
		c.key(1, it, "dev", text(it.text))
	case len(possible) == 1:
		c.note(1, 0, "globals.dev", "not given: %s is the only possible device here", possible[0])
		c.key(1, it, "dev", text(possible[0]))
	case len(possible) > 1:
		c.failf(globals, s.line, globals, "dev is missing, and there are %s; adqsetup would take the last of "+
			"its cards "+
			"that has an address; want dev = %s or --dev %s",
			strings.Join(possible, ", "), possible[0], possible[0])
	default:
		c.failf(globals, s.line, globals, "dev is missing, and adqsetup would take the last of its cards that has "+
			"an address; want dev = eth0 or --dev eth0")
	}
}

// sysctls writes busypoll and busyread. If any application has pollers, adqsetup sets both to 0,
// and sysctls writes 0 only for a value that the file sets. 0 is the kernel's default, and in a
// network namespace a written value could not be applied.
func (c *converter) sysctls(s *section, polled bool) {
	for _, name := range []string{"busypoll", "busyread"} {
		it, ok := s.get(name)
		switch {
		case polled && ok && it.text != "0":
			c.note(1, it.line, "globals."+name, "found %s; adqsetup sets 0 if an application has pollers",
				it.text)
			c.key(1, it, name, "0")
		case ok:
			c.key(1, it, name, scalar(it.text))
		}
	}
}

// priority converts the key priority, which says how adqsetup chooses the transmit queues.
func (c *converter) priority(s *section) {
	it, ok := s.get("priority")
	switch {
	case !ok:
		c.note(1, 0, "globals.priority", "not given: adqsetup leaves the transmit queue to the application; niclane "+
			"always sends a lane's packets by the lane's queues")
	case strings.EqualFold(it.text, "skbedit"):
		c.note(1, it.line, "globals.priority",
			"skbedit has no key here: niclane always sends a lane's packets by the lane's queues")
	default:
		c.failf(globals, it.line, "globals.priority",
			"found %q, which adqsetup accepts without effect; want skbedit, or the key left out", it.text)
	}
}

// privateFlags handles the private flags of Intel's own ice driver.
func (c *converter) privateFlags(s *section) {
	if it, ok := s.get("optimize"); ok {
		if on, ok := c.boolean(s, it); ok {
			c.key(1, it, "optimize", onOff(on))
		}
	}
	for _, f := range [][2]string{
		{"bpstop", "a private flag of Intel's own ice driver, left out; poller: busy or application keeps the card " +
			"from interrupting"},
		{"bpstop-cfg", "a private flag of Intel's own ice driver, left out; poller-timeout is the nearest setting"},
	} {
		it, ok := s.get(f[0])
		if !ok {
			continue
		}
		if on, ok := c.boolean(s, it); ok && on {
			c.note(1, it.line, "globals."+f[0], "%s", f[1])
		}
	}
}

// boolean reads adqsetup's words for on and off.
func (c *converter) boolean(s *section, it item) (on, ok bool) {
	if on, ok := truth(it.text); ok {
		return on, true
	}
	c.failf(s.name, it.line, s.name+"."+it.name, "found %q, want on or off (or true, false, yes, no, 1, 0)", it.text)
	return false, false
}

func truth(s string) (on, ok bool) {
	switch strings.ToLower(s) {
	case "on", "true", "yes", "1":
		return true, true
	case "off", "false", "no", "0":
		return false, true
	}
	return false, false
}

// IsBoolean reports whether adqsetup accepts a word as on or off.
func IsBoolean(s string) bool {
	_, ok := truth(s)
	return ok
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// pollers reports whether any application has adqsetup's pollers.
func pollers(apps []section) bool {
	for i := range apps {
		if polled(&apps[i]) {
			return true
		}
	}
	return false
}

func polled(s *section) bool {
	it, ok := s.get("pollers")
	n, _ := number(it.text)
	return ok && n > 0
}

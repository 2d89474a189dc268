// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// columns is the width of the lanes file.
const columns = 100

// A writer writes a lanes file.
type writer struct{ strings.Builder }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// comment writes a comment, in lines of at most columns. rest is put before all lines but the first.
func (w *writer) comment(indent, first, rest, text string) {
	prefix := indent + "# " + first
	line := prefix
	for _, word := range strings.Fields(text) {
		if line != prefix && len(line)+1+len(word) > columns {
			w.line("%s", line)
			prefix = indent + "# " + rest
			line = prefix
		}
		if line != prefix {
			line += " "
		}
		line += word
	}
	w.line("%s", line)
}

// list writes a heading and its items as comments, or nothing if there are none.
func (w *writer) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	w.line("")
	w.comment("", "", "", heading)
	for _, item := range items {
		w.comment("", "- ", "  ", item)
	}
}

// text returns the lanes file.
func (c *chooser) text() string {
	w := &writer{}
	d := c.State.Device(c.target.device)
	if len(c.Lanes) == 0 {
		w.comment("", "", "", c.nothing())
	} else {
		w.comment("", "", "", "A suggestion of niclane suggest"+c.since()+". Nothing has been changed. What it "+
			"would change: niclane plan FILE.")
		if c.Refused != "" {
			w.list("niclane plan refuses these lanes now:", strings.Split(c.Refused, "\n"))
		}
		w.line("version: 1")
		w.line("globals:")
		w.comment("  ", "", "", c.deviceText(d))
		if c.target.bond != "" {
			w.line("  bond: %s", c.target.bond)
		} else {
			w.line("  dev: %s", c.target.device)
		}
		c.force(w)
		w.comment("  ", "", "", "poller is left out of every lane: interrupts serve it, unless processors are "+
			"free for threads. Once the lanes are applied, niclane advise --lane NAME --measure 5s says whether "+
			"others would pay")
		w.line("lanes:")
		for i := range c.Lanes {
			w.lane(&c.Lanes[i], c.forced != "")
		}
	}
	var left []string
	for _, l := range c.Left {
		left = append(left, fmt.Sprintf("%s (%s): %s", l.Service, strings.Join(l.Of, ", "), l.Why))
	}
	w.list("Not suggested:", left)
	w.list("What "+c.target.name()+" cannot do (niclane probe "+c.target.device+" has all):", c.Limits)
	w.list("What others may fight about:", c.Conflicts)
	w.list("Notes:", c.Notes)
	return w.String()
}

// force writes globals.force, if the lanes need it.
func (c *chooser) force(w *writer) {
	const left = "queues is left out: the default lane, for all other traffic, keeps those that the lanes leave"
	udp := slices.ContainsFunc(c.Lanes, func(l Lane) bool {
		return slices.ContainsFunc(l.Members, func(m Member) bool { return m.Protocol == "udp" })
	})
	switch {
	case c.forced != "":
		w.comment("  ", "", "", "plan refuses queues of the lanes' own ("+c.forced+"; niclane probe "+c.target.device+
			" says why). What remains is the lanes' place on transmit (guarantee, ceiling, rank)")
		w.line("  force: {%s: %s}", device.PartQueueSet, plan.ByShared)
	case udp && c.byReceived:
		w.comment("  ", "", "", left)
		w.comment("  ", "", "", "the mapper "+plan.ByXPSRxqs+" knows the queue of connected sockets only: answers "+
			"of a UDP server would leave by the default lane's queues")
		w.line("  force: {%s: %s}", device.PartMapper, plan.ByQueueMapping)
	default:
		w.comment("  ", "", "", left)
	}
}

// since says how long traffic was watched.
func (c *chooser) since() string {
	if c.Inventory.Watched == 0 {
		return ", from no traffic"
	}
	return fmt.Sprintf(", from %.0f s of traffic", c.Inventory.Watched)
}

// nothing says why there is no lane.
func (c *chooser) nothing() string {
	if c.target.device == "" {
		return "No lane is suggested: no device here has an address that other hosts reach."
	}
	return fmt.Sprintf("No lane is suggested on %s%s: no service there answers many small requests. Nothing has "+
		"been changed. --port, --unit, --pid and --container ask for a service by name.", c.target.name(), c.since())
}

// deviceText describes the device.
func (c *chooser) deviceText(d *device.Device) string {
	text := fmt.Sprintf("the services' packets arrive here: %s", times(queues(d), "queue"))
	if len(c.target.all) > 1 {
		text += " on each of " + strings.Join(c.target.all, ", ")
	}
	if d.Speed > 0 {
		text += fmt.Sprintf(", %d Mbit/s", d.Speed/1e6)
	}
	if d.Node >= 0 {
		text += fmt.Sprintf(", NUMA node %d", d.Node)
	}
	if via := c.target.via; len(via) > 0 && via[len(via)-1] != c.target.bond {
		text += ". The addresses are on " + via[len(via)-1] + "; packets of a lane may have any VLAN tag"
	}
	return text
}

// lane writes a lane. all says that it shares all queues.
func (w *writer) lane(l *Lane, all bool) {
	indent := "    "
	why := func(indent, key string) {
		for _, r := range l.Why {
			if r.Key == key {
				w.comment(indent, "", "", r.Why)
			}
		}
	}
	w.line("  %s:", l.Name)
	why(indent, "")
	shared := len(l.Members) > 1
	if shared {
		w.comment(indent, "", "", "the service's protocols and addresses are members of one lane")
		w.line("%smode: shared", indent)
	}
	if all {
		w.comment(indent, "", "", "the file needs a number, but the lane shares all queues")
	} else {
		why(indent, "queues")
	}
	w.line("%squeues: %d", indent, l.Queues)
	if l.Guarantee > 0 {
		why(indent, "guarantee")
		w.line("%sguarantee: %d%%", indent, l.Guarantee)
		w.line("%srank: 1", indent)
	}
	why(indent, "ports")
	if shared {
		w.line("%smembers:", indent)
	}
	for _, m := range l.Members {
		first, rest := indent, indent
		if shared {
			first, rest = indent+"  - ", indent+"    "
		}
		if m.Protocol != "tcp" || shared {
			w.line("%sprotocol: %s", first, m.Protocol)
			first = rest
		}
		w.line("%sports: %s", first, ports(m.Ports))
		if len(m.Addrs) > 0 {
			why(rest, "addrs")
			w.line("%saddrs: [%s]", rest, quoted(m.Addrs))
		}
		if m.Cgroup != "" {
			why(rest, "cgroup")
			w.line("%scgroup: %q", rest, m.Cgroup)
		}
	}
}

func ports(ps []uint16) string {
	if len(ps) == 1 {
		return fmt.Sprint(ps[0])
	}
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprint(p))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// quoted quotes IPv6 addresses: YAML reads ": " and a final colon as a key.
func quoted(addrs []string) string {
	var out []string
	for _, a := range addrs {
		out = append(out, fmt.Sprintf("%q", a))
	}
	return strings.Join(out, ", ")
}

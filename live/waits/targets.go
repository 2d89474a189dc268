// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/traffic/wait"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/live/services"
)

// A Choice says which services to measure. The zero value chooses all.
type Choice struct {
	services.Query
	Lane   string
	Device string // only services that are reached by it
}

// Targets returns the services of an inventory that are chosen, and for each the lane that its port or
// control group is in. Services in other network namespaces, such as pods, are among them if the query names them or
// they have a lane. It leaves out what only this host itself reaches, and UDP sockets of clients.
// notes say what else is left out, and why. The error says why nothing is chosen.
func Targets(inv *services.Inventory, lanes []intent.Lane, c Choice) (targets []Target, notes []string, err error) {
	for i := range inv.Services {
		s := &inv.Services[i]
		for j := range s.Endpoints {
			e := &s.Endpoints[j]
			named := c.Query != (services.Query{})
			if !c.Accepts(s, e) || !named && (e.Ephemeral && e.Protocol == "udp" || len(e.Devices) == 0) ||
				c.Device != "" && !slices.Contains(e.Devices, c.Device) {
				continue
			}
			targets = join(targets, Target{Name: s.Name, Lane: laneOf(lanes, e.Protocol, e.Port, s.Cgroup),
				Protocol: e.Protocol, Ports: []uint16{e.Port}, Addrs: prefixes(e.Addrs)})
		}
	}
	for _, n := range inv.Elsewhere {
		for _, l := range n.Listening {
			protocol, text, _ := strings.Cut(l, "/")
			number, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				continue
			}
			t := Target{Name: n.Process.Name, Lane: laneOf(lanes, protocol, uint16(number), ""), Protocol: protocol,
				Ports: []uint16{uint16(number)}, NetNS: uint32(n.ID)}
			if accepts(c.Query, n, t) || c.Query == (services.Query{}) && t.Lane != "" {
				targets = join(targets, t)
			}
		}
	}
	if c.Lane != "" {
		targets = slices.DeleteFunc(targets, func(t Target) bool { return t.Lane != c.Lane })
	}
	if len(targets) == 0 {
		return nil, nil, c.none(inv, lanes)
	}
	if n := len(targets); n > wait.MaxServices {
		targets = targets[:wait.MaxServices]
		notes = append(notes, fmt.Sprintf("%d of %d services are left out: name those to measure", n-len(targets), n))
	}
	return unique(targets), notes, nil
}

// OfLanes returns the services at the ports that lanes name: one for each lane and protocol, in the
// order of the lanes. It leaves out the default lane, and members without ports.
func OfLanes(lanes []intent.Lane) (targets []Target) {
	everywhere := map[string]bool{} // by target: a member is on all addresses
	for _, l := range lanes {
		for _, m := range l.Members {
			if l.Name == intent.DefaultLane || len(m.Ports) == 0 {
				continue
			}
			name := l.Name
			if m.Protocol == "udp" {
				name += "/udp"
			}
			i := slices.IndexFunc(targets, func(t Target) bool { return t.Name == name })
			if i < 0 {
				i = len(targets)
				targets = append(targets, Target{Name: name, Lane: l.Name, Protocol: m.Protocol})
			}
			targets[i].Ports = append(targets[i].Ports, m.Ports...)
			targets[i].Addrs = append(targets[i].Addrs, m.Addrs...)
			everywhere[name] = everywhere[name] || len(m.Addrs) == 0
		}
	}
	for i := range targets {
		t := &targets[i]
		slices.Sort(t.Ports)
		t.Ports = slices.Compact(t.Ports)
		slices.SortFunc(t.Addrs, netip.Prefix.Compare)
		if t.Addrs = slices.Compact(t.Addrs); everywhere[t.Name] {
			t.Addrs = nil
		}
	}
	return targets
}

// accepts reports whether a query names a service in another network namespace.
func accepts(q services.Query, n services.Namespace, t Target) bool {
	switch {
	case q.Unit != "":
		return n.Unit == q.Unit || n.Unit == q.Unit+".service"
	case q.PID != 0:
		return n.Process.PID == q.PID || slices.Contains(n.PIDs, q.PID)
	case q.Container != "":
		return n.Container != "" && cgroup.NamesContainer(n.Container, q.Container)
	case q.Port != 0:
		return t.Ports[0] == q.Port && (q.Protocol == "" || q.Protocol == t.Protocol)
	}
	return false
}

func (c Choice) none(inv *services.Inventory, lanes []intent.Lane) error {
	if c.Lane != "" && !slices.ContainsFunc(lanes, func(l intent.Lane) bool { return l.Name == c.Lane }) {
		return fmt.Errorf("no lane %s is in force", c.Lane)
	}
	if c.Query != (services.Query{}) {
		if err := inv.Check(c.Query); err != nil {
			return err
		}
	}
	switch {
	case c.Lane != "":
		return fmt.Errorf("nothing listens at the ports of lane %s", c.Lane)
	case c.Device != "":
		return fmt.Errorf("no such service is reached by %s", c.Device)
	}
	return errors.New("no service here is reached from other hosts")
}

// laneOf returns the first lane with a member that has a port of a control group's service, "" for
// none. It does not look at the member's addresses.
func laneOf(lanes []intent.Lane, protocol string, port uint16, group string) string {
	for _, l := range lanes {
		for _, m := range l.Members {
			if (m.Protocol == "" || m.Protocol == protocol) && (len(m.Ports) == 0 || slices.Contains(m.Ports, port)) &&
				(m.Cgroup == "" || m.Cgroup == group) {
				return l.Name
			}
		}
	}
	return ""
}

// join adds a port to the target that it belongs to, or a target.
func join(targets []Target, t Target) []Target {
	for i := range targets {
		o := &targets[i]
		if o.Name == t.Name && o.Lane == t.Lane && o.Protocol == t.Protocol && o.NetNS == t.NetNS &&
			slices.Equal(o.Addrs, t.Addrs) {
			if !slices.Contains(o.Ports, t.Ports[0]) {
				o.Ports = append(o.Ports, t.Ports[0])
			}
			return targets
		}
	}
	return append(targets, t)
}

// prefixes returns listening addresses as prefixes; nil if one of them stands for all.
func prefixes(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		if a.IsUnspecified() {
			return nil
		}
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// unique adds the port and the protocol to names that several targets have.
func unique(targets []Target) []Target {
	count := map[string]int{}
	for _, t := range targets {
		count[t.Name]++
	}
	for i := range targets {
		t := &targets[i]
		if count[t.Name] == 1 {
			continue
		}
		t.Name = fmt.Sprintf("%s-%d/%s", t.Name, t.Ports[0], t.Protocol)
		if t.NetNS != 0 {
			t.Name += fmt.Sprintf("-ns%d", t.NetNS)
		} else if len(t.Addrs) > 0 {
			t.Name += "-" + t.Addrs[0].Addr().String()
		}
	}
	return targets
}

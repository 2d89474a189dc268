// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/live/services"
)

// makeLanes makes a lane of each service with a port that is worth it.
func (c *chooser) makeLanes() {
	d := c.State.Device(c.target.device)
	if f := c.Future; f != nil {
		l := Lane{Name: fmt.Sprintf("%s-%d", f.Protocol, f.Port), Queues: min(2, budget(d))}
		l.because("", fmt.Sprintf("nothing listens at %s port %d yet: this is for a service to come", f.Protocol,
			f.Port))
		l.because("queues", "its load is not known yet; niclane suggest says more when it serves")
		if c.shared != "" {
			l.because("queues", c.shared)
		}
		l.Members = []Member{{Protocol: f.Protocol, Ports: []uint16{f.Port}}}
		l.because("ports", "the port that was asked for")
		c.Lanes = []Lane{l}
		return
	}
	lanes := map[*services.Service]*Lane{}
	var order []*Lane
	for _, w := range c.worth {
		l := lanes[w.service]
		if l == nil {
			l = &Lane{service: w.service}
			lanes[w.service], order = l, append(order, l)
		}
		l.endpoints = append(l.endpoints, w.endpoint)
		l.requests += w.requests
		if w.doubt != "" {
			l.because("", "asked for, although "+w.doubt)
		}
	}
	slices.SortStableFunc(order, func(a, b *Lane) int { return cmp.Compare(b.requests, a.requests) })
	for i, l := range order {
		if i >= budget(d) {
			for _, e := range l.endpoints {
				c.leave(l.service, e, fmt.Sprintf("%s has %d queues, and the %s for lanes are those of busier "+
					"services; it can be a member of one of their lanes (mode: shared)", c.target.name(), queues(d),
					times(budget(d), "queue")))
			}
			continue
		}
		if e := c.overlap(l); e != nil {
			c.leave(l.service, e, fmt.Sprintf("another lane has all packets to %s port %d: the two services "+
				"differ by address only", e.Protocol, e.Port))
			continue
		}
		l.Name = c.laneName(l.service)
		c.Lanes = append(c.Lanes, *l)
	}
	c.size(d)
	for i := range c.Lanes {
		c.explain(&c.Lanes[i], d)
	}
}

func (l *Lane) because(key, why string) {
	if r := (Reason{key, why}); !slices.Contains(l.Why, r) {
		l.Why = append(l.Why, r)
	}
}

// laneName returns a name that a lanes file allows, and that no lane has yet.
func (c *chooser) laneName(s *services.Service) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s.Name), "-_")
	const longest = 28
	name = name[:min(len(name), longest)]
	if name == "" || name == "default" || len(s.Processes) == 0 {
		e := s.Endpoints[0]
		name = fmt.Sprintf("%s-%d", e.Protocol, e.Port)
	}
	free := name
	for i := 2; slices.ContainsFunc(c.Lanes, func(l Lane) bool { return l.Name == free }); i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free
}

// overlap returns a port of the lane that an earlier lane has too, at an address that the two cannot
// be told apart by.
func (c *chooser) overlap(l *Lane) *services.Endpoint {
	for _, o := range c.Lanes {
		for _, a := range l.endpoints {
			for _, b := range o.endpoints {
				if a.Of() == b.Of() && (!specific(a) || !specific(b)) {
					return a
				}
			}
		}
	}
	return nil
}

// specific reports whether a port listens only at addresses of its own.
func specific(e *services.Endpoint) bool {
	return !slices.ContainsFunc(e.Addrs, netip.Addr.IsUnspecified)
}

// queues returns the number of queue pairs that the device has, or if it has one, could have.
func queues(d *device.Device) int {
	n := min(d.RxQueues, d.TxQueues)
	if m := d.MaxChannels; n < 2 && m != nil {
		n = max(n, m.Combined, min(m.RX, m.TX))
	}
	return max(n, 1)
}

// budget returns how many queues lanes get: half of them. The rest stays for all other traffic.
func budget(d *device.Device) int { return max(queues(d)/2, 1) }

// size gives each lane as many queues as its service uses processors. A queue is served by one
// processor, and the packets of a request cost less than the request itself. If there are not enough
// queues, the largest lanes get fewer.
func (c *chooser) size(d *device.Device) {
	sum := 0
	for i := range c.Lanes {
		l := &c.Lanes[i]
		l.Queues = max(1, min(int(math.Ceil(l.service.CPU-0.1)), c.near(d)))
		sum += l.Queues
	}
	for sum > budget(d) {
		largest := 0
		for i := range c.Lanes {
			if c.Lanes[i].Queues >= c.Lanes[largest].Queues { // of equal ones, the less busy lane
				largest = i
			}
		}
		if c.Lanes[largest].Queues == 1 {
			return
		}
		c.Lanes[largest].Queues--
		sum--
	}
}

// near returns the number of processors that can poll the device's queues: half of those online on
// its NUMA node, at least 1.
func (c *chooser) near(d *device.Device) int {
	n := 0
	for _, cpu := range c.State.CPUs {
		if cpu.Online && (d.Node < 0 || cpu.Node == d.Node) {
			n++
		}
	}
	return max(n/2, 1)
}

// explain fills in the lane's members, its guarantee, and the reasons.
func (c *chooser) explain(l *Lane, d *device.Device) {
	s := l.service
	if text := c.describe(l); text != l.Name {
		l.because("", text)
	}
	if n := c.remote(s, d); n != "" {
		l.because("", n)
	}
	l.because("queues", c.sized(l, d))
	if shared := c.neighbours(l); shared != "" {
		l.because("queues", shared)
	}
	if share, why := c.guarantee(l, d); share > 0 {
		l.Guarantee = share
		l.because("guarantee", why)
	}
	for _, e := range l.endpoints {
		l.listen(e, c.told(e))
	}
	l.because("ports", listening(l.endpoints))
	if slices.ContainsFunc(l.Members, func(m Member) bool { return len(m.Addrs) > 0 }) {
		l.because("addrs", "another service or network namespace listens at the same port of other addresses")
	}
	switch {
	case s.Container != "":
		l.because("", fmt.Sprintf("container %s uses the host's network. Its control group has another name each "+
			"time it is made, so the file names none", short(s.Container)))
	case s.Unit != "" && s.Cgroup != "":
		for i := range l.Members {
			l.Members[i].Cgroup = s.Cgroup
		}
		l.because("cgroup", fmt.Sprintf("the control group of %s", s.Unit))
	}
}

// sized says why the lane has its number of queues.
func (c *chooser) sized(l *Lane, d *device.Device) string {
	why := fmt.Sprintf("its processes use %.1f processors", l.service.CPU)
	switch {
	case len(l.service.Processes) == 0 || c.Inventory.Watched == 0:
		why = "its processor time is not known"
	case l.service.CPU < 0.1:
		why = "its processes use less than 0.1 processors"
	}
	switch {
	case c.shared != "" && queues(d) == 1:
		return fmt.Sprintf("%s has one queue: %s", d.Name, c.shared)
	case c.shared != "":
		return fmt.Sprintf("%s. This is the number of processors: %s", c.shared, why)
	case int(math.Ceil(l.service.CPU-0.1)) > l.Queues && queues(d) > 1:
		return fmt.Sprintf("%s, and each queue is served by one. More is not free: lanes get at most half of the "+
			"%d queues, and one at most half of the processors", why, queues(d))
	}
	return why + ", and each queue is served by one"
}

// told reports whether another service has the same port, so that the address has to tell.
func (c *chooser) told(e *services.Endpoint) bool {
	if !specific(e) {
		return false
	}
	for i := range c.Inventory.Services {
		for j := range c.Inventory.Services[i].Endpoints {
			if o := &c.Inventory.Services[i].Endpoints[j]; o != e && o.Of() == e.Of() && len(o.Devices) > 0 {
				return true
			}
		}
	}
	return slices.ContainsFunc(c.Inventory.Elsewhere,
		func(n services.Namespace) bool { return slices.Contains(n.Listening, e.Of()) })
}

// listen adds a port to the lane's members. addrs says to name its addresses.
func (l *Lane) listen(e *services.Endpoint, addrs bool) {
	var at []string
	for _, a := range e.Addrs {
		if addrs && !a.IsLoopback() {
			at = append(at, a.WithZone("").String())
		}
	}
	for i := range l.Members {
		if m := &l.Members[i]; m.Protocol == e.Protocol && slices.Equal(m.Addrs, at) {
			m.Ports = append(m.Ports, e.Port)
			return
		}
	}
	l.Members = append(l.Members, Member{Protocol: e.Protocol, Ports: []uint16{e.Port}, Addrs: at})
}

// SPDX-License-Identifier: Apache-2.0

package split

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A Content says how the data that the application serves is divided over its instances.
type Content string

// The values of Content.
const (
	// Duplicate: every instance serves all data. A connection goes to the instance on the node where
	// its packets arrive, so no packet crosses nodes. But each instance caches its own copy of the
	// data.
	Duplicate Content = "duplicate"
	// Shard: each instance serves a part of the data, at an address of its own. Packets for that
	// address arrive on the instance's node. No data is cached twice, but clients must know which
	// address has which part.
	Shard Content = "shard"
)

// A Request is the input of Make.
type Request struct {
	// Lane is the lane's name in the file.
	Lane    string
	Content Content
	// Only has the nodes to use. nil means all nodes that have processors of the lane.
	Only    []int
	Nodes   []numa.Node
	Devices []numa.Device
	Storage []numa.Storage
	// DropGroups removes the control groups from the lane. It is for a caller that confines each
	// instance in a group of its own.
	DropGroups bool
	// Command is the command line of every instance. Words in braces stand for values of the instance
	// (Words).
	Command []string
}

// A Split is a divided lane.
type Split struct {
	Lane    string  `json:"lane"`
	Content Content `json:"content"`
	// File is the text of the lanes file to apply.
	File string `json:"file"`
	// Instances are in the order of their nodes.
	Instances []Instance `json:"instances"`
	// Notes are facts that the user should know.
	Notes []string `json:"notes,omitempty"`
}

// An Instance is one instance of the application, on one node.
type Instance struct {
	Index int `json:"index"`
	Node  int `json:"node"`
	// Lane is the name of the instance's lane.
	Lane string `json:"lane"`
	// CPUs are the instance's processors. Mems are the NUMA nodes of its memory.
	CPUs []int `json:"cpus"`
	Mems []int `json:"mems"`
	// Polling are the processors that serve the instance's queues. nil: the planner chooses them, on
	// the node of each card.
	Polling []int        `json:"polling,omitempty"`
	Storage []string     `json:"storage,omitempty"`
	Addrs   []netip.Addr `json:"addrs,omitempty"` // the address of a shard
	Command []string     `json:"command"`
	Env     []string     `json:"env"`
	// Values are the instance's values by word (Words).
	Values map[string]string `json:"-"`
}

// An Error is a mistake in the lanes file, at Path. If Path is "", the mistake is in the request.
type Error struct {
	Path    string
	Message string
}

func (e Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Make divides a lane of a lanes file. text is the file's text, file its parsed content.
func Make(text []byte, file *config.File, r Request) (*Split, error) {
	in := file.Intent
	i := slices.IndexFunc(in.Lanes, func(l intent.Lane) bool { return l.Name == r.Lane })
	if i < 0 {
		var names []string
		for _, l := range in.Lanes {
			names = append(names, l.Name)
		}
		return nil, Error{"lanes", fmt.Sprintf("no lane %q: there is %s", r.Lane, strings.Join(names, ", "))}
	}
	d := division{Request: r, lane: &in.Lanes[i]}
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := d.choose(); err != nil {
		return nil, err
	}
	if err := d.addresses(); err != nil {
		return nil, err
	}
	d.cards()
	d.store()
	if err := d.commands(); err != nil {
		return nil, err
	}
	s := &Split{Lane: r.Lane, Content: r.Content, Instances: d.instances, Notes: d.notes}
	var err error
	if s.File, err = d.rewrite(text); err != nil {
		return nil, err
	}
	// Check that the result is a valid lanes file.
	if _, err := config.Parse(file.Name+" (divided)", []byte(s.File)); err != nil {
		return nil, err
	}
	return s, nil
}

// A division is the state while Make divides a lane.
type division struct {
	Request
	lane      *intent.Lane
	instances []Instance
	// local is true if the planner must choose the processors that serve the queues, on the node of
	// each device.
	local bool
	notes []string
}

func (d *division) notef(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func (d *division) errorf(key, format string, args ...any) error {
	return Error{d.lane.Path + key, fmt.Sprintf(format, args...)}
}

// check returns an error if the lane cannot be divided as the request says.
func (d *division) check() error {
	switch d.Content {
	case Duplicate, Shard:
	default:
		return Error{"", fmt.Sprintf("content %q: want %s or %s", d.Content, Duplicate, Shard)}
	}
	tcp := false
	for _, m := range d.lane.Members {
		if m.Cgroup != "" && !d.DropGroups {
			return Error{m.Path + ".cgroup", "leave it out: the instances get control groups of their own"}
		}
		if m.Cgroup != "" {
			d.notef("control group %s is left out of the lane: each instance is kept to its node", m.Cgroup)
		}
		tcp = tcp || m.Protocol == "tcp" && len(m.Ports) > 0
	}
	if d.Content == Duplicate && !tcp {
		return d.errorf(".ports", "found no TCP port, want one: content duplicate leads connections only at the "+
			"lane's own TCP ports; content shard leads them by address")
	}
	if d.Content == Shard && d.lane.Mode != intent.Exclusive {
		return d.errorf("", "a shared lane has no addresses of its own to tell shards by: give each member a lane, "+
			"or use content duplicate")
	}
	return nil
}

// choose makes one instance for each node and assigns the node's processors and memory to it.
func (d *division) choose() error {
	for _, id := range d.Only {
		if !slices.ContainsFunc(d.Nodes, func(n numa.Node) bool { return n.ID == id }) {
			return Error{"", fmt.Sprintf("node %d does not exist, want one of %s", id, ids(d.Nodes))}
		}
	}
	for _, n := range d.Nodes {
		if d.Only != nil && !slices.Contains(d.Only, n.ID) {
			continue
		}
		cpus := d.of(n.CPUs)
		if len(cpus) == 0 {
			why := d.without(n)
			if d.Only != nil {
				return Error{"", fmt.Sprintf("node %d: %s", n.ID, why)}
			}
			d.notef("node %d gets no instance: %s", n.ID, why)
			continue
		}
		if len(n.Offline) > 0 {
			d.notef("node %d: processors %s are offline", n.ID, device.FormatCPUList(n.Offline))
		}
		mem, err := d.memory(n)
		if err != nil {
			return err
		}
		x := Instance{Index: len(d.instances), Node: n.ID, CPUs: cpus, Mems: []int{mem}, Lane: d.lane.Name}
		x.Polling = slices.Clone(cpus[:min(d.lane.Queues, len(cpus))])
		if len(cpus) < d.lane.Queues {
			d.notef("node %d: %d queues for %d processors: it gets one queue for each processor", n.ID, d.lane.Queues,
				len(cpus))
		}
		if d.busy() {
			// A busy poller uses its processor completely.
			x.CPUs = slices.Clone(cpus[len(x.Polling):])
			if len(x.CPUs) == 0 {
				return d.errorf(".queues", "node %d has %d processors, and pollers take all of them: want fewer "+
					"queues", n.ID,
					len(cpus))
			}
		}
		if d.Content == Shard {
			x.Lane = fmt.Sprintf("%s-node%d", d.lane.Name, n.ID)
		}
		d.instances = append(d.instances, x)
	}
	switch len(d.instances) {
	case 0:
		return d.errorf(".cpus", "no node has processors for an instance")
	case 1:
		d.notef("there is one node with processors for it: one instance, nothing is divided")
	}
	return nil
}

// busy reports whether dedicated threads poll the lane's queues: with "poller: busy", or with a
// number of "pollers".
func (d *division) busy() bool {
	k := d.lane.Poller.Kind
	return k == intent.PollerBusy || k == intent.PollerAuto && d.lane.Poller.Count > 0
}

// of returns those of cpus that the lanes file allows for the lane.
func (d *division) of(cpus []int) []int {
	if len(d.lane.CPUs) == 0 {
		return slices.Clone(cpus)
	}
	return slices.DeleteFunc(slices.Clone(cpus), func(id int) bool { return !slices.Contains(d.lane.CPUs, id) })
}

func (d *division) without(n numa.Node) string {
	switch {
	case len(n.CPUs) > 0:
		return fmt.Sprintf("%s.cpus has none of its processors (%s)", d.lane.Path, device.FormatCPUList(n.CPUs))
	case len(n.Offline) > 0:
		return fmt.Sprintf("its processors (%s) are offline", device.FormatCPUList(n.Offline))
	}
	return "it has memory and no processors"
}

// memory returns the NUMA node from which an instance gets memory. It is the node n of the
// instance. If n has no memory, it is the nearest node that has.
func (d *division) memory(n numa.Node) (int, error) {
	if n.Memory > 0 {
		return n.ID, nil
	}
	best, at := -1, 0
	for _, m := range d.Nodes {
		if m.Memory == 0 {
			continue
		}
		dist, ok := n.Distance[m.ID]
		if !ok {
			dist = 255 // ACPI's distance for an unreachable node, the largest possible
		}
		if best < 0 || dist < at {
			best, at = m.ID, dist
		}
	}
	if best < 0 {
		return 0, Error{"", "no NUMA node has memory"}
	}
	d.notef("node %d has no memory of its own: its instance gets node %d's", n.ID, best)
	return best, nil
}

// addresses assigns one address of the lane to each shard.
func (d *division) addresses() error {
	if d.Content != Shard {
		return nil
	}
	addrs := d.lane.Members[0].Addrs
	if len(addrs) != len(d.instances) {
		return d.errorf(".addrs", "found %d, want %d: one address for each shard, in the order of the nodes "+
			"(%s)", len(addrs),
			len(d.instances), d.nodes())
	}
	for i, a := range addrs {
		if !a.IsSingleIP() {
			return d.errorf(".addrs", "%s is a network: a shard has one address", a)
		}
		d.instances[i].Addrs = []netip.Addr{a.Addr()}
	}
	return nil
}

func (d *division) nodes() string {
	var s []string
	for _, x := range d.instances {
		s = append(s, fmt.Sprint(x.Node))
	}
	return strings.Join(s, ", ")
}

// cards adds notes if packets arrive on other nodes than the instances', and sets local.
func (d *division) cards() {
	if len(d.instances) == 1 {
		return
	}
	covered := map[int]bool{}
	unknown := false
	for _, dev := range d.Devices {
		if dev.Node < 0 {
			unknown = true
			d.notef("%s does not report its NUMA node: processors of every node serve its queues", dev.Name)
			continue
		}
		covered[dev.Node] = true
	}
	var far []string
	for _, x := range d.instances {
		if !covered[x.Node] {
			far = append(far, fmt.Sprint(x.Node))
		}
	}
	if unknown {
		return
	}
	// A connection stays on the node where it arrives, if every instance's node has a card and every
	// card's node has an instance. Otherwise, several nodes serve the queues of one card, and some
	// packets of that card cross to other nodes.
	d.local = d.Content == Duplicate && len(far) == 0 && !d.busy() && len(d.lane.CPUs) == 0 &&
		!slices.ContainsFunc(d.Devices, func(dev numa.Device) bool {
			return !slices.ContainsFunc(d.instances, func(x Instance) bool { return x.Node == dev.Node })
		})
	for i := range d.instances {
		if d.local {
			d.instances[i].Polling = nil // the planner chooses, for each card
		}
	}
	switch {
	case len(far) > 0:
		d.notef("no card is on node %s: packets for its instance cross from a card of another node",
			strings.Join(far, ", "))
	case d.Content == Shard && len(d.Devices) > 1:
		d.notef("a shard's packets that arrive at another node's card cross to the shard's node")
	}
}

func ids(nodes []numa.Node) string {
	var s []string
	for _, n := range nodes {
		s = append(s, fmt.Sprint(n.ID))
	}
	return strings.Join(s, ", ")
}

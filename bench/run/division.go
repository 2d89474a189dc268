// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// A division is the split of a server over the NUMA nodes of the SUT. It is the same in every
// variant.
type division struct {
	machine   nodes.Machine
	instances []split.Instance
	// arrival has the processors of each instance's node. Connections that arrive on them go to
	// the instance. others are the processors of nodes without an instance.
	arrival [][]int
	others  []int
	notes   []string
}

// serverLane is the name of a lane that divide makes only for package split, which divides lanes,
// not servers.
const serverLane = "server"

// divide splits a server over the NUMA nodes of m. cpus are the server's processors.
func divide(m nodes.Machine, cpus []int, port int) (*division, error) {
	name := "none"
	if len(m.Devices) > 0 {
		name = m.Devices[0].Name
	}
	text := fmt.Appendf(nil, "version: 1\nglobals: {dev: %q}\nlanes:\n  %s: {queues: 1, cpus: %q, ports: [%d]}\n", name,
		serverLane, device.FormatCPUList(cpus), port)
	file, err := config.ParseFile("server.split", text)
	if err != nil {
		return nil, err
	}
	s, err := split.Make(text, file, split.Request{Lane: serverLane, Content: split.Duplicate, Nodes: m.Nodes,
		Devices: m.Devices, Command: []string{serverLane}})
	if err != nil {
		return nil, err
	}
	d := &division{machine: m, instances: s.Instances}
	for _, n := range s.Notes {
		d.notes = append(d.notes, strings.ReplaceAll(n, "lanes."+serverLane+".cpus", "the server"))
	}
	for _, n := range m.Nodes {
		if slices.ContainsFunc(s.Instances, func(x split.Instance) bool { return x.Node == n.ID }) {
			d.arrival = append(d.arrival, n.CPUs)
		} else {
			d.others = append(d.others, n.CPUs...)
		}
	}
	return d, nil
}

// lanes divides the server's lane in a lanes file, if there are several instances. It also
// returns notes for the result.
func (d *division) lanes(text string, cpus []int, port int) (string, []string, error) {
	if d == nil || len(d.instances) < 2 || text == "" {
		return text, nil, nil
	}
	file, err := config.ParseFile("lanes.yaml", []byte(text))
	if err != nil {
		return "", nil, err
	}
	lane := laneOf(file.Intent.Lanes, port)
	if lane == "" {
		return text, []string{"no lane has the server's port: none is divided over the NUMA nodes"}, nil
	}
	r := split.Request{Lane: lane, Content: split.Duplicate, Devices: d.machine.Devices, DropGroups: true,
		Command: []string{serverLane}}
	for _, n := range d.machine.Nodes { // keep only the server's processors
		n.CPUs = slices.DeleteFunc(slices.Clone(n.CPUs), func(id int) bool { return !slices.Contains(cpus, id) })
		if len(n.CPUs) > 0 || n.Memory > 0 {
			r.Nodes = append(r.Nodes, n)
		}
	}
	for _, x := range d.instances {
		r.Only = append(r.Only, x.Node)
	}
	s, err := split.Make([]byte(text), file, r)
	if err != nil {
		return "", nil, fmt.Errorf("lane %s for the server's instances: %w", lane, err)
	}
	return s.File, s.Notes, nil
}

// laneOf returns the name of the lane with the server's port. If no lane has that port, it returns
// the only lane, or "" if there are several. A single lane may omit the port on purpose.
func laneOf(all []intent.Lane, port int) string {
	for _, l := range all {
		for _, m := range l.Members {
			if m.Protocol == "tcp" && slices.Contains(m.Ports, uint16(port)) {
				return l.Name
			}
		}
	}
	if len(all) == 1 {
		return all[0].Name
	}
	return ""
}

// labProcessors returns the processors of the lab's SUT and of its other hosts, as in the file. If
// the file has none and the server is split, each side gets half of each NUMA node's processors.
func (s *labSite) labProcessors() (sut, others []int, err error) {
	x := s.e.Lab
	if s.e.Server.Split == "" || x.SUTCPUs != nil || x.OtherCPUs != nil {
		return x.SUTCPUs, x.OtherCPUs, nil
	}
	all, err := numa.Sys("/").Nodes()
	sut, others = halves(all)
	return sut, others, err
}

// halves returns the upper and the lower half of each node's processors. If a node has only one
// processor, or if there is only one node, it returns none, and the lab chooses.
func halves(all []numa.Node) (upper, lower []int) {
	with := 0
	for _, n := range all {
		switch k := len(n.CPUs); k {
		case 0: // memory only
			continue
		case 1:
			return nil, nil
		default:
			with++
			upper, lower = append(upper, n.CPUs[k/2:]...), append(lower, n.CPUs[:k/2]...)
		}
	}
	if with < 2 {
		return nil, nil
	}
	slices.Sort(upper)
	slices.Sort(lower)
	return upper, lower
}

// divide plans the instances of the server.
func (m *measurement) divide(ctx context.Context, r *result.Server) error {
	if m.e.Server.Split == "" {
		m.instances = []*instance{{}}
		return nil
	}
	if m.e.Server.Split == experiment.SplitCard {
		return m.divideByCard(ctx, r)
	}
	if m.division == nil {
		machine, cpus, err := m.on.nodes(ctx)
		if err != nil {
			return fmt.Errorf("server.split: %w", err)
		}
		if own := m.e.Placement.Server.CPUs; len(own) > 0 {
			cpus = own
		}
		if m.division, err = divide(machine, cpus, m.e.Server.Port); err != nil {
			return fmt.Errorf("server.split: %w", err)
		}
		if err := m.division.store(m.on.storage(), machine.Storage); err != nil {
			return fmt.Errorf("server.split: %w", err)
		}
		m.processors = cpus
	}
	d := m.division
	r.Notes = d.notes
	if len(d.instances) == 1 {
		m.instances = []*instance{{Instance: d.instances[0]}}
		return nil
	}
	for _, x := range d.instances {
		m.instances = append(m.instances, &instance{Instance: x, dir: fmt.Sprintf("instance%d", x.Index)})
	}
	return nil
}

// lanesOf returns the lanes file of a variant, or one for each card of the SUT, and notes. The lane of a
// divided server is divided over all cards, in one file.
func (m *measurement) lanesOf(v experiment.Variant) (texts, notes []string, err error) {
	var sut experiment.Host
	if m.e.Hosts != nil {
		sut = m.e.Hosts.SUT
	}
	v.Lanes = sut.Bonded(v.Lanes)
	var cards []map[string]string
	switch ports := sut.Ports(); {
	case len(sut.Cards) == 0 || sut.Bond != "" || v.LanesFile != "":
		cards = []map[string]string{nil}
	case m.division != nil && len(m.division.instances) > 1:
		cards = []map[string]string{{experiment.NameDevice: "[" + strings.Join(append([]string{sut.Device},
			sut.More()...), ", ") + "]", experiment.NameAddress: "[" + strings.Join(sut.Addresses(), ", ") + "]"}}
	default:
		for _, c := range ports {
			cards = append(cards, c.Names())
		}
	}
	for _, names := range cards {
		values := m.values(lab.SUT)
		maps.Copy(values, names)
		text, err := lanesOf(m.f, v, values)
		if err != nil || text == "" {
			return nil, nil, err
		}
		text, more, err := m.division.lanes(text, m.processors, m.e.Server.Port)
		if err != nil {
			return nil, nil, err
		}
		texts, notes = append(texts, text), append(notes, more...)
	}
	return texts, notes, nil
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/nodes"
	"github.com/niclane/niclane/bench/result"
)

// divideByCard plans an instance of the server for each card of the SUT.
func (m *measurement) divideByCard(ctx context.Context, r *result.Server) error {
	var cards []experiment.Card
	if m.e.Hosts != nil && m.e.Hosts.SUT.Bond == "" {
		cards = m.e.Hosts.SUT.Cards
	}
	if len(cards) < 2 {
		m.instances = []*instance{{}}
		r.Notes = []string{"the host has one card or one bond: one instance"}
		return nil
	}
	machine, cpus, err := m.on.nodes(ctx)
	if err != nil {
		return fmt.Errorf("server.split: %w", err)
	}
	if own := m.e.Placement.Server.CPUs; len(own) > 0 {
		cpus = own
	}
	if m.instances, r.Notes, err = perCard(machine, cpus, cards); err != nil {
		return fmt.Errorf("server.split: %w", err)
	}
	return nil
}

// perCard returns an instance for each card, with notes. Cards of one node divide the processors that
// the server has there. If a card is on no known node, or the server has too few processors on one, the
// processors are divided without regard to nodes. With fewer processors than cards, instances share them.
func perCard(m nodes.Machine, cpus []int, cards []experiment.Card) (out []*instance, notes []string, err error) {
	own := map[int][]int{} // the server's processors by node
	for _, n := range m.Nodes {
		for _, id := range n.CPUs {
			if slices.Contains(cpus, id) {
				own[n.ID] = append(own[n.ID], id)
			}
		}
	}
	nodeOf := make([]int, len(cards))
	sharing := map[int]int{} // number of cards by node
	for i, c := range cards {
		at := slices.IndexFunc(m.Devices, func(d numa.Device) bool { return d.Name == c.Device })
		if nodeOf[i] = -1; at >= 0 {
			nodeOf[i] = m.Devices[at].Node
		}
		sharing[nodeOf[i]]++
	}
	for i, c := range cards {
		if node := nodeOf[i]; len(own[node]) < sharing[node] {
			notes = append(notes, fmt.Sprintf("card %s: its node is not known, or the server has too few processors "+
				"there; the instances share all processors without regard to nodes", c.Device))
			own, sharing = map[int][]int{-1: cpus}, map[int]int{-1: len(cards)}
			nodeOf = slices.Repeat([]int{-1}, len(cards))
			break
		}
	}
	taken := map[int]int{}
	for i, c := range cards {
		node := nodeOf[i]
		all, k := own[node], taken[node]
		taken[node]++
		mine := all[k*len(all)/sharing[node] : (k+1)*len(all)/sharing[node]]
		if len(mine) == 0 {
			mine = all
		}
		x := &instance{dir: "instance" + strconv.Itoa(i), card: &c}
		x.Instance = split.Instance{Index: i, Node: node, CPUs: mine}
		for _, n := range m.Nodes {
			if n.Memory > 0 && (node < 0 || n.ID == node) {
				x.Mems = append(x.Mems, n.ID)
			}
		}
		if len(x.Mems) == 0 {
			return nil, nil, errors.New("the kernel lists no NUMA node with memory for " + c.Device)
		}
		x.Values = map[string]string{"node": strconv.Itoa(max(0, node)), "index": strconv.Itoa(i),
			"instances": strconv.Itoa(len(cards))}
		out = append(out, x)
	}
	return out, notes, nil
}

// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// SplitNUMA starts one instance of the server on each NUMA node on which the server has processors.
// "niclane split --content duplicate" divides a server in the same way.
const SplitNUMA = "numa"

// SplitCard starts one instance of the server for each of the SUT's cards, at the card's address and on
// processors of the card's NUMA node.
const SplitCard = "card"

func splitKey() y.Key[Server] {
	return y.Of("split", y.Word(SplitNUMA, SplitCard), "one instance, on any nodes of its processors",
		"`numa`: one instance on each NUMA node on which the server has processors, as `niclane split` starts "+
			"duplicates. See numa.md. Each instance has its own copies of the SUT's processes in `beside`, except "+
			"niclane's own origin, and its own `$scratch` with `files`. `$threads` are divided among them. "+
			"Listeners have SO_REUSEPORT. In every variant, a connection goes to the instance on the node where "+
			"it arrives; a lane with the server's port is divided too. The run fills each instance and proves "+
			"that it answers. Requires `kind: command` and HTTP. On one node there is one instance, and the "+
			"result says so. `card`: one instance for each of the SUT's `cards` (hosts.yaml(5)), at that card's "+
			"`$address` and on processors of its node, for any protocol. Each is filled and counted. `$threads` are "+
			"divided among them.",
		func(s *Server, x string) { s.Split = x })
}

// checkSplit refuses a split server whose kind cannot have several instances, instances with one address
// that may get different content, and a port of a process in Beside, which each instance copies.
func (r *reader) checkSplit() {
	s := &r.e.Server
	if s.Split == "" || !r.fine("server.split") {
		return
	}
	if s.Split == SplitCard {
		if s.Kind != KindCommand && s.Kind != KindMemcached {
			r.Failf("server.split", "found card with kind: %s, want kind: command or memcached", s.Kind)
		}
		if s.Address != "" {
			r.refuse("server.split: card, whose instances have the cards' addresses", "server.address")
		}
	} else if s.Kind != KindCommand {
		r.Failf("server.split", "found with kind: %s, want kind: command, whose listeners have SO_REUSEPORT", s.Kind)
	}
	if p := r.e.Workload.Protocol; p != "" && !isHTTP(p) && s.Split == SplitNUMA && r.fine("workload.protocol") {
		r.Failf("server.split", "found with protocol: %s (line %d), want http or https: each instance has its own "+
			"copy of the content, which requests must not change", p, r.Line("workload.protocol"))
	}
	for i, b := range s.Beside {
		if b.Host == "sut" && !b.Origin && b.Port != 0 {
			r.Failf(fmt.Sprintf("server.beside[%d].port", i), "found with server.split (line %d), want none: each "+
				"instance has a copy of the process, and all copies have this port", r.Line("server.split"))
		}
	}
}

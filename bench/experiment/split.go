// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// SplitNUMA is an instance of the server on each NUMA node that the server has
// processors of, as "niclane split --content duplicate" has them.
const SplitNUMA = "numa"

func splitKey() y.Key[Server] {
	return y.Of("split", y.Word(SplitNUMA), "one instance, on whatever nodes its processors are",
		"`numa`: an instance on each NUMA node that the server has processors of, as `niclane split` starts "+
			"duplicates: see numa.md. Each has what is beside it on the SUT, but for niclane's own origin, and a "+
			"`$scratch` with `files` of its own; `$threads` are dealt out. Its listeners have SO_REUSEPORT, and a "+
			"connection goes to the instance of the node where it arrives, in every variant; a lane with the "+
			"server's port is divided too. Each instance is proven to answer and filled by itself. Want `kind: "+
			"command` and HTTP. On one node there is one instance, and the result says so.",
		func(s *Server, x string) { s.Split = x })
}

// checkSplit refuses servers of which instances cannot be filled with the same,
// or told apart.
func (r *reader) checkSplit() {
	s := &r.e.Server
	if s.Split == "" || !r.fine("server.split") {
		return
	}
	if s.Kind != KindCommand {
		r.Failf("server.split", "found with kind: %s, want kind: command, whose listeners have SO_REUSEPORT", s.Kind)
	}
	if p := r.e.Workload.Protocol; p != "" && !isHTTP(p) && r.fine("workload.protocol") {
		r.Failf("server.split", "found with protocol: %s (line %d), want http or https: instances have duplicates "+
			"of what is read, and nobody writes", p, r.Line("workload.protocol"))
	}
	for i, b := range s.Beside {
		if b.Host == "sut" && !b.Origin && b.Port != 0 {
			r.Failf(fmt.Sprintf("server.beside[%d].port", i), "found with server.split (line %d), want none: an "+
				"instance's port is not the SUT's alone", r.Line("server.split"))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// differences lists how variant i differs from the variant before it. For the first variant it
// lists all settings. It does not list what lanes change. The function did lists that when lanes
// are applied.
func differences(e *experiment.Experiment, i int) []string {
	v := e.Variants[i]
	var before experiment.Variant
	if i > 0 {
		before = e.Variants[i-1]
	}
	var out []string
	switch {
	case v.Noise && !before.Noise:
		for _, n := range e.Noise {
			out = append(out, noiseText(n))
		}
	case before.Noise && !v.Noise:
		out = append(out, "no noise")
	}
	if had := before.Lanes != "" || before.LanesFile != ""; had && v.Lanes == "" && v.LanesFile == "" {
		out = append(out, "no lanes")
	}
	switch {
	case v.LanePolicy == before.LanePolicy:
	case v.LanePolicy == "":
		out = append(out, "no LanePolicy")
	case before.LanePolicy == "":
		out = append(out, "a LanePolicy: the node has lanes")
	default:
		out = append(out, "another LanePolicy")
	}
	if v.Server != nil {
		out = append(out, serverText(e, v))
	} else if before.Server != nil {
		out = append(out, "server: as in the first variant")
	}
	if v.Tune != nil {
		out = append(out, tuneText(v.Tune))
	} else if before.Tune != nil {
		out = append(out, "nothing tuned by hand")
	}
	if v.ClientLanes != "" {
		out = append(out, "lanes on the clients' hosts too")
	} else if before.ClientLanes != "" {
		out = append(out, "no lanes on the clients' hosts")
	}
	for _, part := range slices.Sorted(maps.Keys(v.Force)) {
		if before.Force[part] != v.Force[part] {
			out = append(out, fmt.Sprintf("%s: %s, because the experiment forces it", part, v.Force[part]))
		}
	}
	return out
}

// noiseText describes one noise.
func noiseText(n experiment.Noise) string {
	way := "to the SUT"
	if n.Direction == experiment.FromSUT {
		way = "from the SUT"
	}
	rate := y.BitsText(n.BitsPerSecond)
	if n.BitsPerSecond == 0 {
		rate = y.PermilleText(n.Share) + " of the link"
	}
	flows := fmt.Sprintf("%d flows", n.Flows)
	if n.Flows == 1 {
		flows = "1 flow"
	}
	text := fmt.Sprintf("bulk %s %s at %s in %s", strings.ToUpper(n.Protocol), way, rate, flows)
	if n.Protocol == "tcp" {
		text += ", paced inside TCP"
	}
	return text
}

// did lists what applied plans have changed, by the reasons of their steps: each reason once, in the
// order of the plans.
func did(plans ...*plan.Plan) []string {
	steps := 0
	var reasons []string
	tell := func(line string) {
		if !slices.Contains(reasons, line) {
			reasons = append(reasons, line)
		}
	}
	for _, p := range plans {
		steps += len(p.Steps)
		for _, s := range p.Steps {
			// Leave out the steps of single transmit queues, which have nearly the same reason each.
			if !strings.Contains(s.Reason, "transmit queue") {
				tell(fmt.Sprintf("%s: %s", s.Part, s.Reason))
			}
		}
	}
	for _, p := range plans {
		for _, c := range p.Choices {
			if c.Part == device.PartMapper && c.Mechanism != "" {
				tell("mapper: " + c.Reason)
			}
		}
	}
	made := "the plan"
	if len(plans) > 1 {
		made = fmt.Sprintf("the %d cards' plans", len(plans))
	}
	first := fmt.Sprintf("niclane apply has made the %d steps of %s; nothing else differs. For each part:", steps, made)
	return append([]string{first}, reasons...)
}

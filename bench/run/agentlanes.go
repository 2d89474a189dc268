// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/plan"
)

// confirmWithin is how long a host keeps lanes that are not confirmed. Lanes may cut the connection
// to its agent.
const confirmWithin = 30 * time.Second

// SetTune rolls back the lanes of the variant before, before it changes the tuning. Their rollback
// would otherwise undo tuned settings, and channels cannot change while lanes use the queues.
func (s *agentSite) SetTune(ctx context.Context, v experiment.Variant) ([]string, error) {
	if !reflect.DeepEqual(v.Tune, s.tuned) {
		if _, err := s.setLanes(ctx, lab.SUT, nil); err != nil {
			return nil, err
		}
		s.queues = nil
	}
	return s.measurement.SetTune(ctx, v)
}

func (s *agentSite) SetLanes(ctx context.Context, v experiment.Variant) (Lanes, error) {
	var clients Lanes
	for i, h := range s.h.Clients {
		texts, err := s.clientLanes(clientName(i, h), v)
		if err != nil {
			return Lanes{}, err
		}
		made, err := s.setLanes(ctx, clientName(i, h), texts)
		if err != nil {
			return Lanes{}, err
		}
		if made != nil {
			clients = applied(texts, made)
		}
	}
	texts, notes, err := s.lanesOf(v)
	if err != nil {
		return Lanes{}, err
	}
	if slices.Equal(texts, s.lanes[lab.SUT]) {
		return Lanes{Text: joined(texts), ClientPlan: clients.Plan}, nil
	}
	s.queues = nil
	made, err := s.setLanes(ctx, lab.SUT, texts)
	if err != nil || made == nil {
		return Lanes{ClientPlan: clients.Plan}, err
	}
	for _, p := range made {
		for _, c := range s.h.SUT.Ports() {
			s.queues = append(s.queues, laneQueues(p, c.Device)...)
		}
	}
	out := applied(texts, made)
	out.Did = append(out.Did, notes...)
	out.ClientPlan = clients.Plan
	return out, nil
}

// clientLanes returns the texts of a variant's lanes for a client, one for each of its cards; none:
// there are no lanes.
func (s *agentSite) clientLanes(name string, v experiment.Variant) (out []string, err error) {
	if v.ClientLanes == "" {
		return nil, nil
	}
	h := s.host(name)
	for i, c := range h.Ports() {
		if h.Bond != "" && i > 0 {
			break
		}
		text, err := experiment.Expand(h.Bonded(v.ClientLanes), s.clientValues(name, c))
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// setLanes undoes the present lanes of a host and applies new ones: one text, or one for each card. It
// returns the plans that were applied; nil: none.
func (s *agentSite) setLanes(ctx context.Context, host string, texts []string) ([]*plan.Plan, error) {
	if slices.Equal(texts, s.lanes[host]) {
		return nil, nil
	}
	c := s.agents[host]
	if len(texts) == 0 {
		if err := c.Rollback(ctx); err != nil {
			return nil, err
		}
		s.lanes[host] = nil
		return nil, nil
	}
	var plans []*plan.Plan
	for i, text := range texts {
		out, err := c.Apply(ctx, agent.Lanes{Text: text, Card: i, ConfirmWithin: int64(confirmWithin)})
		if err != nil {
			return nil, err
		}
		made, err := planOf(out)
		if err != nil {
			return nil, err
		}
		// If the lanes have cut the connection to the agent, Confirm fails and the host undoes them.
		if len(made.Steps) > 0 {
			if err := c.Confirm(ctx); err != nil {
				return nil, err
			}
		}
		plans = append(plans, made)
	}
	s.lanes[host] = slices.Clone(texts)
	return plans, nil
}

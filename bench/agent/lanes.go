// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/part/tune"
	"github.com/niclane/niclane/lane/config"
)

// PartTune is the part of niclane that changes settings of the whole host.
const PartTune = "tune"

// PartLed is the part of niclane that directs connections to one of the session's listeners.
const PartLed = "led"

// GroupVariable is the environment variable that tells PartLed the session's control group.
// PartLed can reach only the listeners of that group.
const GroupVariable = "NICLANE_BENCH_GROUP"

// mayLead returns an error if the agent may not run PartLed: it needs --lanes and a control
// group.
func (s *session) mayLead() error {
	switch {
	case len(s.agent.Devices) == 0:
		return errors.New("this agent leads no connections: it was started without --lanes")
	case s.group.Path == "":
		return errors.New("this agent leads no connections: it has no control group, as there is no hierarchy")
	}
	return nil
}

// TuneVariable is the environment variable that tells PartTune where to record the previous
// values. The agent restores them from there if the process is killed.
const TuneVariable = "NICLANE_BENCH_TUNE"

func tunePath(dir string) string { return filepath.Join(dir, "tune") }

// AllowProcessors is the word of Config.Tune that allows the processors' governor and energy
// preference. Other words are services.
const AllowProcessors = "processors"

// mayTune returns an error if the agent may not run PartTune.
func (s *session) mayTune(r Request) error {
	var c tune.Config
	if err := json.Unmarshal(r.Config, &c); err != nil {
		return err
	}
	return MayTune(c, s.agent.Devices, s.agent.Tune)
}

// MayTune returns an error if an agent with these values of --lanes and --allow-tune may not run
// PartTune with c. As for lanes, the devices must be of --lanes, and sysctls need --lanes too. What
// concerns the machine must be of --allow-tune.
func MayTune(c tune.Config, lanes, allowed []string) error {
	if len(lanes) == 0 && (len(c.Devices) > 0 || len(c.Sysctls) > 0) {
		return errors.New("this agent tunes no network: it was started without --lanes")
	}
	for _, dev := range c.Devices {
		if !slices.Contains(lanes, dev) {
			return fmt.Errorf("tune %s: this agent was started with --lanes %s", dev, strings.Join(lanes, ","))
		}
	}
	wanted := c.Stop
	if c.Governor != "" || c.Energy != "" {
		wanted = append([]string{AllowProcessors}, wanted...)
	}
	for _, what := range wanted {
		switch {
		case slices.Contains(allowed, what):
		case len(allowed) == 0:
			return fmt.Errorf("tune %s: this agent was started without --allow-tune", what)
		default:
			return fmt.Errorf("tune %s: this agent was started with --allow-tune %s", what, strings.Join(allowed, ","))
		}
	}
	return nil
}

// apply undoes the session's earlier lanes and applies new ones by "niclane apply". A file for a further
// card is applied beside those of the cards before it. The journal records them. A separate process of
// niclane undoes them unless confirm follows in time.
func (s *session) apply(ctx context.Context, l Lanes) (Applied, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Card < 0 || l.Card > s.cards {
		return nil, fmt.Errorf("lanes of card %d: this session has cards 0 to %d", l.Card, s.cards)
	}
	if len(s.agent.Devices) == 0 {
		return nil, errors.New("this agent makes no lanes: it was started without --lanes")
	}
	in, err := config.Parse("lanes.yaml", []byte(l.Text))
	if err != nil {
		return nil, err
	}
	on := in.Group.Devices
	if in.Group.Bond != "" {
		on = append(slices.Clone(on), in.Group.Bond)
	}
	for _, dev := range on {
		if !slices.Contains(s.agent.Devices, dev) {
			return nil, fmt.Errorf("lanes on %s: this agent was started with --lanes %s", dev,
				strings.Join(s.agent.Devices, ","))
		}
	}
	s.lanes.Lock()
	defer s.lanes.Unlock()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	if l.Card == 0 {
		if err := s.record().rollback(); err != nil {
			return nil, err
		}
	}
	file := cardFile(s.lanesFile(), l.Card)
	if err := os.WriteFile(file, []byte(l.Text), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rollbackTime)
	defer cancel()
	return s.record().niclane(ctx, "apply", "--confirm-within", time.Duration(l.ConfirmWithin).String(), file)
}

func (s *session) record() record {
	return record{Lanes: s.lanesFile(), Cards: s.cards, StateDir: s.agent.StateDir, RunDir: s.agent.RunDir}
}

// confirm keeps the lanes until they are rolled back.
func (s *session) confirm(ctx context.Context) error {
	s.lanes.Lock()
	defer s.lanes.Unlock()
	if s.ctx.Err() != nil {
		return errClosed
	}
	_, err := s.record().niclane(ctx, "confirm")
	return err
}

// rollback undoes the lanes, if any.
func (s *session) rollback() error {
	s.lanes.Lock()
	defer s.lanes.Unlock()
	return s.record().rollback()
}

// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/phc"
	"github.com/niclane/niclane/internal/traffic/wait"
)

// cardClocks relates the clocks of the cards that stamp received packets to CLOCK_MONOTONIC, and gives
// the programs the relations.
type cardClocks struct {
	clocks []*cardClock
	notes  []string
}

// A cardClock is a clock and the devices that have it.
type cardClock struct {
	number  int
	devices map[int]string // by index
	clock   *phc.Clock
	tracker phc.Tracker
	jumps   atomic.Int64 // as of the last reading
}

// openCardClocks opens the clocks of cards, by index. look is phc.Look.
func openCardClocks(cards map[int]string, look func(string) (phc.Stamping, error)) *cardClocks {
	k := &cardClocks{}
	for _, index := range slices.Sorted(maps.Keys(cards)) {
		dev := cards[index]
		s, err := look(dev)
		if note := stampNote(dev, s, err); note != "" {
			k.notes = append(k.notes, note)
		}
		if err != nil || s.Clock < 0 || s.Filter == unix.HWTSTAMP_FILTER_NONE {
			continue
		}
		if i := slices.IndexFunc(k.clocks, func(c *cardClock) bool { return c.number == s.Clock }); i >= 0 {
			k.clocks[i].devices[index] = dev
			continue
		}
		c := &cardClock{number: s.Clock, devices: map[int]string{index: dev}}
		if c.clock, err = phc.Open(s.Clock); err == nil {
			err = c.read()
		}
		if err != nil {
			k.notes = append(k.notes, fmt.Sprintf("card-to-stack: the timestamps of %s are not used: %v", dev, err))
			c.close()
			continue
		}
		k.clocks = append(k.clocks, c)
	}
	return k
}

// stampNote says what would be right where a card could stamp the packets of requests and does not,
// "" where it does or cannot.
func stampNote(dev string, s phc.Stamping, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("card-to-stack of %s begins at the interrupt: %v", dev, err)
	case s.Clock < 0 || !s.All || s.Filter < 0 || s.Filter == unix.HWTSTAMP_FILTER_ALL:
		return ""
	}
	command := "hwstamp_ctl -i " + dev
	if s.TxType != unix.HWTSTAMP_TX_OFF {
		command += fmt.Sprintf(" -t %d", s.TxType)
	}
	off := "is off"
	if s.Filter != unix.HWTSTAMP_FILTER_NONE {
		off = "leaves out the packets of services"
	}
	return fmt.Sprintf("card-to-stack of %s begins at the interrupt: the card can stamp all received packets, but its "+
		"filter %s; %s -r 1 (linuxptp) changes this", dev, off, command)
}

func (c *cardClock) read() error {
	_, _, err := c.relation()
	return err
}

// relation reads the clock and returns its relation, false if there is none now.
func (c *cardClock) relation() (phc.Relation, bool, error) {
	r, err := c.clock.Read()
	if err != nil {
		return phc.Relation{}, false, err
	}
	relation, ok := c.tracker.Add(r)
	c.jumps.Store(relation.Jumps)
	return relation, ok, nil
}

func (c *cardClock) close() {
	if c.clock != nil {
		c.clock.Close()
	}
}

// give reads the clocks and gives the programs the relations. Where a clock cannot be read, its stamps
// are not used.
func (k *cardClocks) give(p *wait.Programs) error {
	var errs []error
	for _, c := range k.clocks {
		var relation *wait.CardClock
		if r, ok, err := c.relation(); err == nil && ok {
			relation = (*wait.CardClock)(&r)
		}
		for index := range c.devices {
			errs = append(errs, p.SetCardClock(index, relation))
		}
	}
	return errors.Join(errs...)
}

// follow is give until the end of ctx. p must be open for so long.
func (k *cardClocks) follow(ctx context.Context, p *wait.Programs) error {
	for len(k.clocks) > 0 {
		if rest(ctx, phc.Interval); ctx.Err() != nil {
			return nil
		}
		if err := k.give(p); err != nil {
			return err
		}
	}
	return nil
}

func (k *cardClocks) close() {
	for _, c := range k.clocks {
		c.close()
	}
}

// report returns what to say of the cards' timestamps.
func (k *cardClocks) report() []string {
	notes := slices.Clone(k.notes)
	for _, c := range k.clocks {
		if n := c.jumps.Load(); n > 0 {
			notes = append(notes, fmt.Sprintf("the clock of %s jumped or changed its rate %d times: its timestamps "+
				"were not used after it, and up to %s before it was seen card-to-stack may be wrong by it",
				strings.Join(slices.Sorted(maps.Values(c.devices)), ", "), n, phc.Interval.Round(time.Millisecond)))
		}
	}
	return notes
}

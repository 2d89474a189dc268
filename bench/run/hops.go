// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lab/virtual"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/plan"
)

// sampleEvery is the interval between two samples of the hops. A sample takes a few netlink dumps,
// in every variant alike.
const sampleEvery = 20 * time.Millisecond

// samplesPerWindow is the least number of samples of a window, in virtual time.
const samplesPerWindow = 500

// sampleEvery returns the interval between two samples of a window. In virtual time samples cost the
// SUT nothing.
func (s *labSite) sampleEvery() time.Duration {
	if !virtual.Here() {
		return sampleEvery
	}
	return min(sampleEvery, time.Duration(s.e.Load.Window/samplesPerWindow))
}

func (s *labSite) queueing(ctx context.Context) func() ([]result.Hop, error) {
	ctx, cancel := context.WithCancel(ctx)
	var hops []result.Hop
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		hops, err = s.readHops(ctx)
	}()
	return func() ([]result.Hop, error) {
		cancel()
		<-done
		return hops, err
	}
}

func (s *labSite) readHops(ctx context.Context) (_ []result.Hop, err error) {
	reader, err := s.lab.Hops()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	tick := time.NewTicker(s.sampleEvery())
	defer tick.Stop()
	lanes := map[string]string{}
	for _, l := range s.queues {
		lanes["sut class "+l.Class] = l.Name
		for _, q := range l.Tx {
			lanes["sut qdisc fq "+plan.FQHandle(q)] = l.Name
		}
	}
	var t hopTable
	for {
		read, err := reader.Read()
		switch {
		case errors.Is(err, netlink.ErrDumpInterrupted): // skip one sample
		case err != nil:
			return nil, fmt.Errorf("queues on the way: %w", err)
		default:
			t.record(groupHops(read, s.lab.Config, lanes))
		}
		select {
		case <-ctx.Done():
			return t.hops, nil
		case <-tick.C:
		}
	}
}

// A reading is the state of a hop (a queue on a packet's way) at one moment.
type reading struct {
	result.Hop
	bytes int64
	drops uint64 // since the hop was created
}

// groupHops sums the lab's hops into the rows of a result. The reach of a row says whether a lane can
// change the row's queue. lanes has the names of lanes by their hops: an HTB class, or the fq of each
// transmit queue.
func groupHops(read []lab.Hop, c lab.Config, lanes map[string]string) []reading {
	var out []reading
	add := func(name string, reach result.Reach, limit int, x lab.Hop) {
		for i := range out {
			if out[i].Name == name {
				out[i].bytes += x.Backlog
				out[i].drops += uint64(x.Drops)
				return
			}
		}
		out = append(out, reading{result.Hop{Name: name, Reach: reach, Rate: int64(c.LinkRate), Limit: int64(limit)},
			x.Backlog, uint64(x.Drops)})
	}
	for _, x := range read {
		switch name := lanes[x.Name]; {
		case x.Name == "switch to sut":
			add(result.HopSwitch, result.ReachNone, c.SwitchBuffer, x)
		case name == intent.DefaultLane:
			add(result.HopDefaultClass, result.ReachHost, 0, x)
		case name != "":
			add(result.HopClass+name, result.ReachOwn, 0, x)
		case x.Name == "host backlog":
			add("SUT: packets handed to its processor", result.ReachHost, 0, x)
		case strings.HasPrefix(x.Name, "card tx ring "):
			add(result.HopCard, result.ReachHost, c.Ring*c.Queues, x)
		}
		// Other hops, which are receive rings and inner classes, are left out. The fill level of a
		// receive ring cannot be read, and the machine's counters have its drops.
	}
	return out
}

// A hopTable collects readings by hop.
type hopTable struct {
	hops  []result.Hop
	first []uint64 // drops of each hop at its first reading
}

func (t *hopTable) record(all []reading) {
	for _, x := range all {
		i := 0
		for i < len(t.hops) && t.hops[i].Name != x.Name {
			i++
		}
		if i == len(t.hops) {
			x.Bytes = stats.NewHistogram()
			t.hops, t.first = append(t.hops, x.Hop), append(t.first, x.drops)
		}
		t.hops[i].Bytes.Record(x.bytes)
		t.hops[i].Drops = x.drops - t.first[i]
	}
}

// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/report"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/intent"
	"github.com/niclane/niclane/lab"
)

// sampleEvery is how often the hops are read. A reading costs a few netlink
// dumps on the generator's side, the same in every variant.
const sampleEvery = 20 * time.Millisecond

// hopSampler reads the queues of every hop until it is stopped.
type hopSampler struct {
	cancel context.CancelFunc
	done   chan struct{}
	hops   []report.Hop
	err    error
}

func (h *labHosts) sample(ctx context.Context) *hopSampler {
	ctx, cancel := context.WithCancel(ctx)
	s := &hopSampler{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.hops, s.err = h.sampleHops(ctx)
	}()
	return s
}

func (s *hopSampler) stop() ([]report.Hop, error) {
	s.cancel()
	<-s.done
	return s.hops, s.err
}

func (h *labHosts) sampleHops(ctx context.Context) (_ []report.Hop, err error) {
	reader, err := h.Hops()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var hops []*report.Hop
	first := map[string]uint64{}
	for {
		read, err := reader.Read()
		if err != nil {
			return nil, fmt.Errorf("hops: %w", err)
		}
		for _, g := range h.group(read) {
			hops = record(hops, g, first)
		}
		select {
		case <-ctx.Done():
			out := make([]report.Hop, len(hops))
			for i, x := range hops {
				out[i] = *x
			}
			return out, nil
		case <-tick.C:
		}
	}
}

// grouped is one reading of a hop as the report names it.
type grouped struct {
	report.Hop
	bytes int64
	drops uint64
}

// group sums the lab's hops into those that a reader can tell apart: what is
// out of the host's reach, what the lane has to itself, and the rest.
func (h *labHosts) group(read []lab.Hop) []grouped {
	var out []grouped
	add := func(name string, reach report.Reach, limit int64, x lab.Hop) {
		for i := range out {
			if out[i].Name == name {
				out[i].bytes += x.Backlog
				out[i].drops += uint64(x.Drops)
				return
			}
		}
		out = append(out, grouped{report.Hop{Name: name, Reach: reach, Rate: int64(h.linkRate()), Limit: limit}, x.Backlog, uint64(x.Drops)})
	}
	for _, x := range read {
		switch {
		case x.Name == "switch to sut":
			add("switch → SUT", report.ReachNone, int64(h.buffer()), x)
		case x.Name == "card rx rings":
			// Its backlog cannot be read; its drops are the SUT's.
		case h.classes[x.Name] == intent.DefaultLane:
			add("SUT: the default lane's class", report.ReachHost, 0, x)
		case h.classes[x.Name] != "":
			add("SUT: the lane's class", report.ReachOwn, 0, x)
		case x.Name == "host backlog":
			add("SUT: packets handed to its processor", report.ReachHost, 0, x)
		case strings.HasPrefix(x.Name, "card tx ring "):
			add("card → link", report.ReachHost, int64(h.Config.Ring)*int64(h.Config.Queues), x)
		}
	}
	return out
}

func record(hops []*report.Hop, g grouped, first map[string]uint64) []*report.Hop {
	for _, x := range hops {
		if x.Name == g.Name {
			x.Bytes.Record(g.bytes)
			x.Drops = g.drops - first[g.Name]
			return hops
		}
	}
	first[g.Name] = g.drops
	x := g.Hop
	x.Bytes = stats.NewHistogram()
	x.Bytes.Record(g.bytes)
	return append(hops, &x)
}

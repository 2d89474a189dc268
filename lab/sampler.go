// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"time"
)

// A HopSummary is what a Sampler saw of one hop.
type HopSummary struct {
	Name string `json:"name"`
	// Samples is the number of samples in which the hop was there.
	Samples int `json:"samples"`
	// Mean and Max of the backlog, bytes.
	Mean int64 `json:"meanBacklogBytes"`
	Max  int64 `json:"maxBacklogBytes"`
	// Drops, Packets and Bytes between the first and the last sample.
	Drops   int64 `json:"drops"`
	Packets int64 `json:"packets"`
	Bytes   int64 `json:"bytes"`
}

// A Sampler reads the hops at intervals until it is stopped.
type Sampler struct {
	stop chan struct{}
	done chan result
}

type result struct {
	hops []HopSummary
	err  error
}

// Sample starts a sampler. interval is at least 1 ms: every sample costs a few
// netlink dumps of processor time where the sampling process runs.
func (l *Lab) Sample(interval time.Duration) (*Sampler, error) {
	if interval < time.Millisecond {
		return nil, fmt.Errorf("lab: sampling interval %v: want at least 1ms", interval)
	}
	r, err := l.Hops()
	if err != nil {
		return nil, err
	}
	s := &Sampler{stop: make(chan struct{}), done: make(chan result, 1)}
	go func() {
		hops, err := sample(r, interval, s.stop)
		s.done <- result{hops, errors.Join(err, r.Close())}
	}()
	return s, nil
}

// Stop ends sampling, after a last sample, and returns what was seen. It may
// be called once.
func (s *Sampler) Stop() ([]HopSummary, error) {
	close(s.stop)
	r := <-s.done
	return r.hops, r.err
}

func sample(r *HopReader, interval time.Duration, stop <-chan struct{}) ([]HopSummary, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var order []string
	sums := map[string]*HopSummary{}
	first := map[string]Hop{}
	for last := false; ; {
		hops, err := r.Read()
		if err != nil {
			return nil, err
		}
		for _, h := range hops {
			s := sums[h.Name]
			if s == nil {
				s = &HopSummary{Name: h.Name}
				sums[h.Name], first[h.Name] = s, h
				order = append(order, h.Name)
			}
			f := first[h.Name]
			s.Samples++
			s.Mean += h.Backlog // the sum, until the end
			s.Max = max(s.Max, h.Backlog)
			s.Drops, s.Packets, s.Bytes = h.Drops-f.Drops, h.Packets-f.Packets, h.Bytes-f.Bytes
		}
		if last {
			break
		}
		select {
		case <-stop:
			last = true
		case <-tick.C:
		}
	}
	var out []HopSummary
	for _, name := range order {
		s := *sums[name]
		s.Mean /= int64(s.Samples)
		out = append(out, s)
	}
	return out, nil
}

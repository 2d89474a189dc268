// SPDX-License-Identifier: Apache-2.0

// Package metrics shows the waits of the services in lanes as histograms for Prometheus. It measures
// by package waits as long as it is open, and begins again when the lanes have other ports. It serves
// nothing: package watch/metrics has the server.
package metrics

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/live/waits"
)

// Waits is a prometheus.Collector.
type Waits struct {
	ctx   context.Context
	lanes func() ([]intent.Lane, error)
	open  func(context.Context, waits.Options) (Source, error)

	wait, requests, lost, followed, cost, failing *prometheus.Desc

	mu      sync.Mutex // guards the rest
	targets []waits.Target
	source  Source // nil: no lane names a port
}

// A Source measures waits. *waits.Collector is one.
type Source interface {
	Snapshot() (waits.Snapshot, error)
	Close() error
}

// Open begins to measure the services at the ports of lanes. It calls lanes again at each Collect. It
// works in the calling thread's network namespace, until Close or the end of ctx. Its errors are those
// of waits.Open and of lanes.
func Open(ctx context.Context, lanes func() ([]intent.Lane, error)) (*Waits, error) {
	w := newWaits(ctx, lanes, func(ctx context.Context, o waits.Options) (Source, error) {
		return waits.Open(ctx, o)
	})
	if err := w.follow(); err != nil {
		return nil, err
	}
	return w, nil
}

func newWaits(ctx context.Context, lanes func() ([]intent.Lane, error),
	open func(context.Context, waits.Options) (Source, error)) *Waits {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("niclane_"+name, help, labels, nil)
	}
	return &Waits{ctx: ctx, lanes: lanes, open: open,
		wait: desc("request_wait_seconds", "How long followed requests waited in a part of this host.", "lane",
			"part", "protocol"),
		requests: desc("requests_total", "Requests that were seen to begin while requests were followed.", "lane",
			"protocol"),
		lost: desc("requests_lost_total", "Requests and samples that the programs had no room for."),
		followed: desc("requests_followed_ratio", "The share of the time in which requests are followed, so that it "+
			"costs little."),
		cost:    desc("waits_cpu_seconds_total", "Processor time of the programs that follow requests."),
		failing: desc("waits_failing", "1 while the waits of requests cannot be measured."),
	}
}

// Describe implements prometheus.Collector.
func (w *Waits) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.wait, w.requests, w.lost, w.followed, w.cost, w.failing} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (w *Waits) Collect(out chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	failing := 0.0
	s, err := w.snapshot()
	if err != nil {
		failing = 1
	}
	out <- prometheus.MustNewConstMetric(w.failing, prometheus.GaugeValue, failing)
	if err != nil || w.source == nil {
		return
	}
	for _, x := range s.Services {
		out <- prometheus.MustNewConstMetric(w.requests, prometheus.CounterValue, float64(x.Seen), x.Lane, x.Protocol)
		for stage, h := range x.Waits {
			if _, missing := s.Missing[waits.Stage(stage)]; !missing {
				out <- histogram(w.wait, h, x.Lane, waits.Stage(stage).String(), x.Protocol)
			}
		}
	}
	out <- prometheus.MustNewConstMetric(w.lost, prometheus.CounterValue, float64(s.Lost))
	out <- prometheus.MustNewConstMetric(w.followed, prometheus.GaugeValue, s.SampleRate)
	out <- prometheus.MustNewConstMetric(w.cost, prometheus.CounterValue, s.Cost.CPU.Seconds())
}

func (w *Waits) snapshot() (s waits.Snapshot, err error) {
	if err := w.follow(); err != nil || w.source == nil {
		return s, err
	}
	if s, err = w.source.Snapshot(); err != nil {
		// It does not recover: begin again at the next request.
		err = errors.Join(err, w.source.Close())
		w.source, w.targets = nil, nil
	}
	return s, err
}

// follow measures the services of the present lanes.
func (w *Waits) follow() error {
	lanes, err := w.lanes()
	if err != nil {
		return err
	}
	targets := waits.OfLanes(lanes)
	if reflect.DeepEqual(targets, w.targets) {
		return nil
	}
	if err := w.close(); err != nil || len(targets) == 0 {
		return err
	}
	if w.source, err = w.open(w.ctx, waits.Options{Targets: targets}); err != nil {
		w.source = nil
		return err
	}
	w.targets = targets
	return nil
}

// Close ends the measurement.
func (w *Waits) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

func (w *Waits) close() (err error) {
	if w.source != nil {
		err = w.source.Close()
	}
	w.source, w.targets = nil, nil
	return err
}

// The upper bounds of the buckets are powers of two, which are bounds of waits.Histogram's buckets
// too: from 1 us to 17 s.
const firstBound, lastBound = 10, 34

// histogram makes a classic histogram.
func histogram(d *prometheus.Desc, h *waits.Histogram, labels ...string) prometheus.Metric {
	buckets := map[float64]uint64{}
	for k := firstBound; k <= lastBound; k++ {
		buckets[float64(uint64(1)<<k)/1e9] = 0
	}
	h.Each(func(_, high int64, n uint64) bool {
		for k := firstBound; k <= lastBound; k++ {
			if high < 1<<k {
				buckets[float64(uint64(1)<<k)/1e9] += n
			}
		}
		return true
	})
	return prometheus.MustNewConstHistogram(d, h.Count(), h.Mean()*float64(h.Count())/1e9, buckets, labels...)
}

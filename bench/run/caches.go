// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/fetch"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// cacheCounts has the counters of each instance's cache, and of the origin from which the caches
// fetch. Without a cache or an origin, its counters are nil.
type cacheCounts struct {
	caches []*cache.Counters
	origin *cache.Counters
}

// countCaches reads the counters of the caches and of the origin, each by a process on its host.
// Without gates it reads nothing.
func (m *measurement) countCaches(ctx context.Context) (c cacheCounts, err error) {
	if m.e.Gates == nil {
		return c, nil
	}
	if c.caches, err = m.readCaches(ctx); err != nil {
		return c, err
	}
	if i := slices.IndexFunc(m.e.Server.Beside, func(b experiment.Process) bool { return b.Origin }); i >= 0 {
		b := m.e.Server.Beside[i]
		c.origin, err = m.readCache(ctx, b.Host,
			cache.Config{Kind: cache.Origin, Address: net.JoinHostPort(m.on.addressOf(b.Host), strconv.Itoa(b.Port))})
	}
	return c, err
}

func (m *measurement) readCache(ctx context.Context, host string, config cache.Config) (*cache.Counters, error) {
	x := &cache.Counters{}
	return x, outcome(ctx, m.on, launch{what: "counters of " + config.Kind, host: host, part: "cache",
		config: config}, x)
}

// readCaches reads the counters of each instance's cache; none without server.cache.
func (m *measurement) readCaches(ctx context.Context) (out []*cache.Counters, err error) {
	x := m.e.Server.Cache
	if x == nil {
		return nil, nil
	}
	for _, of := range m.instances {
		config := cache.Config{Kind: x.Kind, Address: m.addressOf(of)}
		values := m.valuesOf(lab.SUT, of)
		if config.At, err = experiment.Expand(x.At, values); err != nil {
			return nil, err
		}
		if x.Address != "" {
			if config.Address, err = experiment.Expand(x.Address, values); err != nil {
				return nil, err
			}
		}
		c, err := m.readCache(ctx, lab.SUT, config)
		if err != nil {
			return nil, of.because(err)
		}
		out = append(out, c)
	}
	return out, nil
}

// since puts into window w how much each counter has grown since the reading before. The window gets
// the sum of all instances, and each instance if there are several.
func (c cacheCounts) since(before cacheCounts, w *result.Window) {
	grown := func(a, b *cache.Counters) *cache.Counters {
		if a == nil || b == nil {
			return nil
		}
		return &cache.Counters{Requests: b.Requests - a.Requests, Hits: b.Hits - a.Hits, Bytes: b.Bytes - a.Bytes,
			CPU: b.CPU - a.CPU, Processors: b.Processors}
	}
	w.Origin = grown(before.origin, c.origin)
	for i := range c.caches {
		one := grown(before.caches[i], c.caches[i])
		if i < len(w.Instances) {
			w.Instances[i].Cache = one
		}
		if w.Cache == nil {
			w.Cache = &cache.Counters{}
		}
		w.Cache.Requests, w.Cache.Hits = w.Cache.Requests+one.Requests, w.Cache.Hits+one.Hits
	}
}

// fetchAll fills the cache of an instance. It requests every cacheable object twice: some caches keep an object in
// another place after it was read from the cache.
func (m *measurement) fetchAll(ctx context.Context, x *instance) (requests int64, err error) {
	c := fetch.Config{Address: m.addressOf(x), Host: m.e.Workload.HostHeader, Passes: 2}
	for _, o := range m.e.Workload.Objects {
		if !o.Uncached {
			c.Objects = append(c.Objects, fetch.Object{Path: o.Path, Copies: o.Copies, Bytes: o.Bytes})
		}
	}
	at := m.on.seats(1)[0]
	if m.e.Workload.TLS != nil {
		c.TLS, c.CAFile = true, m.authorityOn(at.host)
	}
	t, err := m.on.launch(ctx, launch{what: "prefill", host: at.host, part: "fetch", config: c,
		Place: experiment.Place{CPUs: at.CPUs}})
	if err != nil {
		return 0, err
	}
	var r fetch.Result
	began := time.Now()
	if err := t.result(ctx, &r); err != nil {
		return 0, fmt.Errorf("after %v: %w", time.Since(began).Round(time.Millisecond), err)
	}
	return r.Objects, nil
}

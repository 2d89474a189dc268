// SPDX-License-Identifier: Apache-2.0

// Package cache reads the counters of a cache, or of the origin behind it: how many requests it
// had, and how many of them it answered by itself. It does not verify the counters. The caller
// compares them with the load's requests and bytes.
package cache

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/part/httpserver"
)

// Kinds of cache.
const (
	Varnish       = "varnish"       // varnishstat(1)
	TrafficServer = "trafficserver" // its plugin stats_over_http
	Nginx         = "nginx"         // its log, whose lines begin with $upstream_cache_status
	Origin        = "origin"        // niclane's own origin (package httpserver), at its path /stats
)

// Config says what to read.
type Config struct {
	Kind string `json:"kind"`
	// At is varnishd's directory (-n), the path of Traffic Server's plugin, or
	// nginx' log.
	At string `json:"at,omitempty"`
	// Address of Traffic Server or the origin, HOST:PORT.
	Address string `json:"address,omitempty"`
}

// Counters are the counts since the cache was started.
type Counters struct {
	// Requests is how many requests the cache answered. Hits is how many of them it answered with
	// an object that it had.
	Requests int64 `json:"requests"`
	Hits     int64 `json:"hits"`
	// Bytes, CPU time in ns and Processors are set for an origin only.
	Bytes      int64 `json:"bytes,omitempty"`
	CPU        int64 `json:"cpuNs,omitempty"`
	Processors int   `json:"processors,omitempty"`
}

// apart is the time between two readings of a cache's counters. No cache counts a request at once. Varnish's
// threads add up their counts when they wait for work, which is 50 ms after the last request of a connection
// (timeout_linger). Those of Traffic Server do it periodically, in the experiments' configurations each 100 ms
// (proxy.config.raw_stat_sync_interval_ms). nginx writes its log after the answer.
const apart = 250 * time.Millisecond

// patience is the time limit of one reading.
const patience = 10 * time.Second

// Run reads the counters. The counts of a cache are complete when two readings agree, with apart between them. An
// origin's always are.
func Run(ctx context.Context, c Config) (Counters, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	read, ok := map[string]func(context.Context, Config) (Counters, error){
		Varnish: varnish, TrafficServer: trafficServer, Nginx: nginx, Origin: origin,
	}[c.Kind]
	if !ok {
		return Counters{}, fmt.Errorf("cache %q: want %s, %s, %s or %s", c.Kind, Varnish, TrafficServer, Nginx, Origin)
	}
	pause := apart
	if c.Kind == Origin {
		pause = 0
	}
	out, err := settled(ctx, pause, func() (Counters, error) { return read(ctx, c) })
	if err != nil {
		return out, fmt.Errorf("counters of %s: %w", c.Kind, err)
	}
	return out, nil
}

// settled reads until two readings agree that are apart by pause; 0: once.
func settled(ctx context.Context, pause time.Duration, read func() (Counters, error)) (Counters, error) {
	last, err := read()
	for err == nil && pause > 0 {
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("they keep changing: %w", ctx.Err())
		case <-time.After(pause):
		}
		var now Counters
		if now, err = read(); now == last {
			break
		}
		last = now
	}
	return last, err
}

// varnish adds up counters: Varnish has one for each kind of answer (varnish-counters(7)).
func varnish(ctx context.Context, c Config) (Counters, error) {
	out, err := exec.CommandContext(ctx, "varnishstat", "-n", c.At, "-1", "-j").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return Counters{}, err
	}
	return varnishText(out)
}

func varnishText(text []byte) (c Counters, err error) {
	var x struct {
		Counters map[string]struct {
			Value int64 `json:"value"`
		} `json:"counters"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return c, err
	}
	for _, name := range []string{"MAIN.cache_hit", "MAIN.cache_miss", "MAIN.s_pass", "MAIN.s_synth"} {
		n, ok := x.Counters[name]
		if !ok {
			return c, fmt.Errorf("no %s", name)
		}
		c.Requests += n.Value
	}
	c.Hits = x.Counters["MAIN.cache_hit"].Value
	return c, nil
}

// missed are Traffic Server's counters of requests that it did not answer by itself
// (admin-guide/monitoring/statistics/core/http-transaction). cache_miss_client_not_cacheable is
// left out: it counts requests for the counters themselves, but no GETs without a query, as the
// load's are.
var missed = []string{"cache_miss_cold", "cache_miss_changed", "cache_miss_client_no_cache", "cache_miss_ims",
	"cache_read_error"}

func trafficServer(ctx context.Context, c Config) (Counters, error) {
	text, err := get(ctx, c.Address, c.At)
	if err != nil {
		return Counters{}, err
	}
	return trafficServerText(text)
}

func trafficServerText(text []byte) (c Counters, err error) {
	var x struct {
		Global map[string]string `json:"global"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return c, err
	}
	of := func(name string) int64 {
		n, failed := strconv.ParseInt(x.Global["proxy.process.http."+name], 10, 64)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("proxy.process.http.%s: %w", name, failed))
		}
		return n
	}
	// cache_hit_mem_fresh is part of cache_hit_fresh.
	for _, name := range []string{"cache_hit_fresh", "cache_hit_revalidated", "cache_hit_ims",
		"cache_hit_stale_served"} {
		c.Hits += of(name)
	}
	c.Requests = c.Hits
	for _, name := range missed {
		c.Requests += of(name)
	}
	return c, err
}

// nginx counts lines of nginx' log: nginx itself does not count the hits of its cache.
func nginx(_ context.Context, c Config) (Counters, error) {
	f, err := os.Open(c.At)
	if err != nil {
		return Counters{}, err
	}
	defer f.Close()
	return nginxLog(f)
}

func nginxLog(in io.Reader) (c Counters, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		status, _, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		c.Requests++
		switch string(status) {
		case "HIT", "STALE", "UPDATING", "REVALIDATED":
			c.Hits++
		case "MISS", "BYPASS", "EXPIRED", "-":
		default:
			return c, fmt.Errorf("line %d begins with %.40q, want $upstream_cache_status", c.Requests, status)
		}
	}
	return c, lines.Err()
}

func origin(ctx context.Context, c Config) (Counters, error) {
	text, err := get(ctx, c.Address, "/stats")
	if err != nil {
		return Counters{}, err
	}
	var s httpserver.Stats
	if err := json.Unmarshal(text, &s); err != nil {
		return Counters{}, err
	}
	return Counters{Requests: s.Requests, Bytes: s.Bytes, CPU: s.CPU, Processors: s.Processors}, nil
}

// maxAnswer limits what is read of an answer, bytes. Answers of servers are shorter.
const maxAnswer = 4 << 20

func get(ctx context.Context, address, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", path, answer.StatusCode)
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
}

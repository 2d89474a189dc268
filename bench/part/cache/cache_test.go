// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/servetest"
)

func TestVarnishText(t *testing.T) {
	got, err := varnishText([]byte(`{"version": 1, "counters": {"MAIN.cache_hit": {"value": 988}, "MAIN.cache_miss": {"value": 10}, "MAIN.s_pass": {"value": 2}, "MAIN.s_synth": {"value": 0}, "MAIN.uptime": {"value": 9}}}`))
	if err != nil || got.Requests != 1000 || got.Hits != 988 {
		t.Errorf("%+v, %v; want 988 of 1000", got, err)
	}
	_, err = varnishText([]byte(`{"counters": {"MAIN.cache_hit": {"value": 988}}}`))
	errtest.Says(t, "counters that are missing", err, "no MAIN.cache_miss")
}

func TestTrafficServer(t *testing.T) {
	const text = `{"global": {"proxy.process.http.cache_hit_fresh": "90", "proxy.process.http.cache_hit_mem_fresh": "80", "proxy.process.http.cache_hit_revalidated": "0",
		"proxy.process.http.cache_hit_ims": "0", "proxy.process.http.cache_hit_stale_served": "0", "proxy.process.http.cache_miss_cold": "6", "proxy.process.http.cache_miss_changed": "1", "proxy.process.http.cache_miss_client_no_cache": "2",
		"proxy.process.http.cache_miss_client_not_cacheable": "77", "proxy.process.http.cache_miss_ims": "1", "proxy.process.http.cache_read_error": "0"}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_stats" {
			w.Write([]byte(text))
			return
		}
		http.NotFound(w, r)
	}))
	defer s.Close()
	address := strings.TrimPrefix(s.URL, "http://")
	got, err := Run(t.Context(), Config{Kind: TrafficServer, Address: address, At: "/_stats"})
	if err != nil || got.Requests != 100 || got.Hits != 90 {
		t.Errorf("%+v, %v; want 90 of 100", got, err)
	}
	_, err = Run(t.Context(), Config{Kind: TrafficServer, Address: address, At: "/"})
	errtest.Says(t, "no plugin", err, "status 404")
	if _, err := trafficServerText([]byte(`{"global": {}}`)); err == nil {
		t.Error("counters that are missing were taken")
	}
}

// TestSettled: counters that a server adds up now and then are complete if two readings agree, and not before.
// Zeros of a first reading agree with none.
func TestSettled(t *testing.T) {
	for _, x := range []struct {
		name  string
		pause time.Duration
		reads []int64
		want  int64
		took  time.Duration
	}{
		{"counted late", time.Second, []int64{0, 200, 200}, 200, 2 * time.Second},
		{"no requests yet", time.Second, []int64{0, 0, 200}, 0, time.Second},
		{"exact at once", 0, []int64{7, 8}, 7, 0},
		{"changing", 4 * time.Second, []int64{1, 2, 3, 4, 5}, 3, patience},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				got, err := settled(ctx, x.pause, func() (c Counters, err error) {
					c.Requests, x.reads = x.reads[0], x.reads[1:]
					return c, nil
				})
				if got.Requests != x.want || (err != nil) != (x.name == "changing") || time.Since(began) != x.took {
					t.Errorf("%d after %v, %v; want %d after %v", got.Requests, time.Since(began), err, x.want, x.took)
				}
			})
		})
	}
}

func TestNginxLog(t *testing.T) {
	got, err := nginxLog(strings.NewReader("HIT 200\nMISS 200\nHIT 200\n- 400\nSTALE\n"))
	if err != nil || got.Requests != 5 || got.Hits != 3 {
		t.Errorf("%+v, %v; want 3 of 5", got, err)
	}
	_, err = nginxLog(strings.NewReader("HIT\n10.0.0.1 - - [x]\n"))
	errtest.Says(t, "another log", err, "line 2")
}

func TestOrigin(t *testing.T) {
	s, err := httpserver.Listen(httpserver.Config{Address: "127.0.0.1:0", Origin: true})
	if err != nil {
		t.Fatal(err)
	}
	servetest.Start(t, s.Serve)
	got, err := Run(t.Context(), Config{Kind: Origin, Address: s.Addr().String()})
	if err != nil || got.Processors < 1 || got.CPU <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

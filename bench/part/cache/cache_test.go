// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

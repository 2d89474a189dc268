// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/servetest"
)

// start serves c and returns a client and the base of its URLs.
func start(t *testing.T, c Config) (*http.Client, string, func() Result) {
	t.Helper()
	c.Address = "127.0.0.1:0"
	s, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	stop := servetest.Start(t, s.Serve)
	tr := &http.Transport{}
	scheme := "http://"
	if c.SelfSigned {
		scheme = "https://"
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.CA())
		tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, scheme + s.Addr().String(), stop
}

func TestObjects(t *testing.T) {
	for _, c := range []Config{{}, {SelfSigned: true}} {
		client, base, stop := start(t, c)
		for _, tt := range []struct {
			path            string
			status          int
			bytes, declared int64
		}{
			{"/0", 200, 0, 0},
			{"/1000", 200, 1000, 1000},
			{"/4194304?x=1", 200, 4 << 20, 4 << 20},
			{"/chunked/100000", 200, 100_000, -1},
			{"/status/204", 204, 0, 0},
			{"/x", 404, 19, 19},
			{"/-1", 404, 19, 19},
		} {
			r, err := client.Get(base + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r.Body)
			r.Body.Close()
			if err != nil || n != tt.bytes || r.StatusCode != tt.status || r.ContentLength != tt.declared ||
				r.ProtoMajor != 1 {
				t.Errorf("%s: %s %d, %d bytes of %d, %v", tt.path, r.Proto, r.StatusCode, n, r.ContentLength, err)
			}
		}
		if r := stop(); r.Requests != 7 || r.Connections != 1 || r.Bytes != 1000+4<<20+100_000 {
			t.Errorf("counted %+v", r)
		}
	}
}

func TestScript(t *testing.T) {
	client, base, _ := start(t, Config{CloseEvery: 2, FailEvery: 3, AbortEvery: 5})
	for n := 1; n <= 6; n++ {
		// Request 5 gets a new connection. On a connection that it has used before, the client
		// would repeat an aborted request.
		client.Transport.(*http.Transport).DisableKeepAlives = n == 5
		r, err := client.Get(base + "/1")
		if n == 5 {
			if !errors.Is(err, io.EOF) && (err == nil || !strings.Contains(err.Error(), "reset")) {
				t.Errorf("request 5: %v, want an end", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if (r.StatusCode == 500) != (n%3 == 0) || r.Close != (n%2 == 0) {
			t.Errorf("request %d: status %d, close %v", n, r.StatusCode, r.Close)
		}
	}
}

// TestStall: a stall must also delay other clients' requests, and sleeps must be used in turn.
func TestStall(t *testing.T) {
	const stall, sleep = 100 * time.Millisecond, 20 * time.Millisecond
	client, base, _ := start(t, Config{Stalls: []Stall{{2, int64(stall)}}, Sleeps: []int64{0, 0, 0, int64(sleep)}})
	took := func() time.Duration {
		began := time.Now()
		r, err := client.Get(base + "/1")
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Body.Close()
		return time.Since(began)
	}
	took()
	began := time.Now()
	other := make(chan time.Time)
	for range 2 { // requests 2 and 3
		go func() { took(); other <- time.Now() }()
	}
	for range 2 {
		// One of the two requests began the stall; the other may have arrived later.
		if end := <-other; end.Sub(began) < stall {
			t.Errorf("answered after %v, want at least %v", end.Sub(began), stall)
		}
	}
	if d := took(); d < sleep {
		t.Errorf("the fourth took %v, want at least %v", d, sleep)
	}
}

func TestConfigErrors(t *testing.T) {
	_, err := Run(t.Context(), Config{Address: "x", CertFile: "y", SelfSigned: true, Sleeps: []int64{-1},
		Stalls: []Stall{{}}, CloseEvery: -1})
	errtest.Says(t, "all", err, "address", "keyFile", "selfSigned", "sleepsNs[0]", "stalls[0]", "closeEvery")
	if _, err := Run(t.Context(), Config{Address: "127.0.0.1:0", CertFile: "/nonexistent",
		KeyFile: "/nonexistent"}); err == nil {
		t.Error("no certificate: no error")
	}
}

// TestOrigin: an origin says which objects caches may store, and counts requests and bytes.
func TestOrigin(t *testing.T) {
	client, base, _ := start(t, Config{Origin: true})
	for _, tt := range []struct{ path, control string }{{"/1000/17", "public, max-age=31536000"},
		{"/1000", "public, max-age=31536000"}, {"/1000/miss-1", "no-store"}} {
		r, err := client.Get(base + tt.path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if err != nil || n != 1000 || r.StatusCode != http.StatusOK || r.Header.Get("Cache-Control") != tt.control {
			t.Errorf("%s: %d bytes, %v, status %d, Cache-Control %q, want %q", tt.path, n, err, r.StatusCode,
				r.Header.Get("Cache-Control"), tt.control)
		}
	}
	r, err := client.Get(base + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var s Stats
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || s.Requests != 3 || s.Bytes != 3000 || s.CPU <= 0 ||
		s.Processors < 1 {
		t.Errorf("%+v, %v: want 3 requests and 3000 bytes", s, err)
	}
}

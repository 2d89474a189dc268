// SPDX-License-Identifier: Apache-2.0

package delayserver

import (
	"bufio"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestPercentile checks that the share of draws beyond each percentile is right, within five
// standard deviations.
func TestPercentile(t *testing.T) {
	for _, d := range []Distribution{Exponential(1e6), {Share: 0.995, Fast: 1e6, From: 5e6, Slow: 5e6}} {
		const n = 1_000_000
		rng := rand.New(rand.NewPCG(1, 2))
		all := make([]int64, n)
		for i := range all {
			all[i] = d.draw(rng)
		}
		slices.Sort(all)
		for _, p := range []float64{50, 99, 99.9, 99.99} {
			at, _ := slices.BinarySearch(all, int64(d.Percentile(p)))
			beyond, want := float64(n-at), n*(1-p/100)
			if math.Abs(beyond-want) > 5*math.Sqrt(want) {
				t.Errorf("%+v: %.0f of %d draws are beyond P%v, want %.0f", d, beyond, n, p, want)
			}
		}
	}
	if got, want := Exponential(1e6).Percentile(99.9), 1e6*math.Log(1000); math.Abs(got-want) > 2 {
		t.Errorf("P99.9 of an exponential %.0f, want %.0f", got, want)
	}
}

// TestServer checks that every answer comes, that none comes before its delay, and that the server
// records how late each was.
func TestServer(t *testing.T) {
	d := Distribution{Share: 0.9, Fast: 100e3, From: 20e6, Slow: 1e6}
	s, err := Start(Memcached(Config{Address: netip.MustParseAddrPort("127.0.0.1:0"), Delays: d, Seed: 7, Every: 200e6,
		Length: 100e6}))
	must.Do(t, err)
	c, err := net.Dial("tcp", s.Addr().String())
	must.Do(t, err)
	defer c.Close()
	rng := rand.New(rand.NewPCG(7, 1)) // the same random numbers as the server's
	r := bufio.NewReader(c)
	slow, n := 0, 0
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; n++ {
		sent := time.Now()
		// The request is sent in two pieces, and only the second one ends it.
		for _, piece := range []string{"get a", "\r\n"} {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
		}
		if line, err := r.ReadString('\n'); err != nil || line != "END\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
		took, want := time.Since(sent), time.Duration(d.draw(rng))
		if took < want {
			t.Errorf("answer %d took %v, want at least %v", n, took, want)
		}
		if took > 60*time.Millisecond {
			slow++
		}
	}
	if slow == 0 {
		t.Error("500 ms without a stall of 100 ms every 200 ms")
	}
	res, err := s.Stop()
	if err != nil || res.Requests != int64(n) || res.Late.Count() != int64(n) {
		t.Errorf("%d requests, %d answers, %v; want %d", res.Requests, res.Late.Count(), err, n)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("it listens after its end")
	}
}

func TestStartRefuses(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:0")
	for _, c := range []Config{{Address: at}, Memcached(Config{Address: at, Every: 1, Length: 1}),
		Memcached(Config{Address: netip.MustParseAddrPort("192.0.2.1:1")})} {
		if s, err := Start(c); err == nil {
			_, _ = s.Stop()
			t.Errorf("%+v: no error", c)
		}
	}
}

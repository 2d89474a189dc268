// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/live/waits"
)

// host is lanes and a source that can be changed.
type host struct {
	lanes   []intent.Lane
	lanesOf error
	openErr error
	readErr error
	opened  []waits.Options
	closed  int
}

func (h *host) Snapshot() (waits.Snapshot, error) {
	s := waits.Snapshot{SampleRate: 0.5, Lost: 3, Missing: map[waits.Stage]string{waits.Card: "no card"},
		Cost: waits.Cost{CPU: 2e9}}
	for _, t := range h.opened[len(h.opened)-1].Targets {
		x := waits.Service{Target: t, Requests: 4, Seen: 5}
		for i := range x.Waits {
			x.Waits[i] = &waits.Histogram{}
		}
		for _, v := range []int64{500, 1023, 1024, 1 << 35} {
			x.Waits[waits.Host].Record(v)
		}
		s.Services = append(s.Services, x)
	}
	return s, h.readErr
}

func (h *host) Close() error { h.closed++; return nil }

func (h *host) waits(t *testing.T) *Waits {
	return newWaits(t.Context(), func() ([]intent.Lane, error) { return h.lanes, h.lanesOf },
		func(_ context.Context, o waits.Options) (Source, error) {
			if h.openErr != nil {
				return nil, h.openErr
			}
			h.opened = append(h.opened, o)
			return h, nil
		})
}

func lane(name string, ports ...uint16) intent.Lane {
	return intent.Lane{Name: name, Members: []intent.Member{{Protocol: "tcp", Ports: ports}}}
}

// gather returns the values of the series, by name and labels.
func gather(t *testing.T, w *Waits) map[string]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	out := map[string]string{}
	for line := range strings.Lines(answer.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			out[name] = value
		} else if f := strings.Fields(line); f[1] == "TYPE" {
			out["type "+f[2]] = f[3]
		}
	}
	return out
}

// TestHistogram: the buckets are cumulative, a bound is not part of its bucket, and longer waits are
// only in the count.
func TestHistogram(t *testing.T) {
	h := host{lanes: []intent.Lane{lane("a", 1)}}
	got := gather(t, h.waits(t))
	const labels = `{lane="a",part="host",protocol="tcp"`
	for name, want := range map[string]string{
		`niclane_request_wait_seconds_bucket` + labels + `,le="1.024e-06"}`:      "2",
		`niclane_request_wait_seconds_bucket` + labels + `,le="2.048e-06"}`:      "3",
		`niclane_request_wait_seconds_bucket` + labels + `,le="17.179869184"}`:   "3",
		`niclane_request_wait_seconds_bucket` + labels + `,le="+Inf"}`:           "4",
		`niclane_request_wait_seconds_count` + labels + `}`:                      "4",
		`niclane_request_wait_seconds_count{lane="a",part="app",protocol="tcp"}`: "0",
		`niclane_requests_total{lane="a",protocol="tcp"}`:                        "5",
		`niclane_requests_lost_total`:                                            "3",
		`niclane_requests_followed_ratio`:                                        "0.5",
		`niclane_waits_cpu_seconds_total`:                                        "2",
		`niclane_waits_failing`:                                                  "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
	sum, err := strconv.ParseFloat(got[`niclane_request_wait_seconds_sum`+labels+`}`], 64)
	if err != nil || sum < 34.1 || sum > 34.7 {
		t.Errorf("sum %g, %v, want about 34.4", sum, err)
	}
	for name := range got {
		if strings.Contains(name, `part="card"`) {
			t.Errorf("a part that cannot be seen has a series: %s", name)
		}
	}
}

// TestLanesChange: other ports begin a new measurement, the same ones do not, and no ports end it.
func TestLanesChange(t *testing.T) {
	h := host{lanes: []intent.Lane{lane("a", 1)}}
	w := h.waits(t)
	gather(t, w)
	gather(t, w)
	if len(h.opened) != 1 || h.closed != 0 {
		t.Fatalf("opened %d times, closed %d times", len(h.opened), h.closed)
	}
	h.lanes = []intent.Lane{lane("a", 1), lane("b", 2)}
	if got := gather(t, w); got[`niclane_requests_total{lane="b",protocol="tcp"}`] == "" || len(h.opened) != 2 ||
		h.closed != 1 {
		t.Errorf("opened %d times, closed %d times: %v", len(h.opened), h.closed, got)
	}
	h.lanes = []intent.Lane{lane("a")}
	if got := gather(t, w); len(got) != 2 || got["niclane_waits_failing"] != "0" || h.closed != 2 {
		t.Errorf("without ports: %v, closed %d times", got, h.closed)
	}
	must.Do(t, w.Close())
}

// TestFailing: what cannot be measured is a metric of its own, and is tried again.
func TestFailing(t *testing.T) {
	wrong := errors.New("wrong")
	for name, set := range map[string]func(h *host, err error){
		"lanes": func(h *host, err error) { h.lanesOf = err },
		"open":  func(h *host, err error) { h.openErr = err },
		"read":  func(h *host, err error) { h.readErr = err },
	} {
		h := host{lanes: []intent.Lane{lane("a", 1)}}
		w := h.waits(t)
		set(&h, wrong)
		if got := gather(t, w); len(got) != 2 || got["niclane_waits_failing"] != "1" {
			t.Errorf("%s: %v", name, got)
		}
		set(&h, nil)
		if got := gather(t, w); got["niclane_waits_failing"] != "0" || got["niclane_requests_lost_total"] != "3" {
			t.Errorf("%s: afterwards %v", name, got)
		}
		must.Do(t, w.Close())
		if h.closed != len(h.opened) {
			t.Errorf("%s: opened %d times, closed %d times", name, len(h.opened), h.closed)
		}
	}
}

// TestReference compares the section of docs/reference/metrics.md about waits with the metrics.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	must.Do(t, err)
	_, ours, _ := strings.Cut(string(page), "\n## Waits\n")
	ours, _, _ = strings.Cut(ours, "\n## ")
	var documented, shown []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(niclane_\\w+)` \\| (\\w+) \\| ([\\w, ]+) \\|").
		FindAllStringSubmatch(ours, -1) {
		documented = append(documented, row[1]+" "+row[2]+" "+row[3])
	}
	h := host{lanes: []intent.Lane{lane("a", 1)}}
	got := gather(t, h.waits(t))
	descs := make(chan *prometheus.Desc, 100)
	h.waits(t).Describe(descs)
	close(descs)
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`).FindStringSubmatch(d.String())
		labels := strings.Join(strings.Split(cmp.Or(m[2], "none"), ","), ", ")
		shown = append(shown, m[1]+" "+got["type "+m[1]]+" "+labels)
	}
	slices.Sort(documented)
	slices.Sort(shown)
	if diff := gocmp.Diff(shown, documented); diff != "" {
		t.Errorf("docs/reference/metrics.md (-code +page):\n%s", diff)
	}
}

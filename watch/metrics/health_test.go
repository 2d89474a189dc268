// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/watch"
)

// A keeper reports a state that the test has chosen.
type keeper struct {
	conditions []watch.Condition
	failing    string
}

func (k *keeper) State() ([]watch.Condition, watch.Count, string) {
	return k.conditions, watch.Count{Looks: 7, Drifts: 3, Repairs: 2, LastLook: time.Unix(1000, 0)}, k.failing
}

// reading returns a Reading in which every counter has at least one value.
func reading(context.Context) (Reading, error) {
	return Reading{
		Lanes: []plan.FittedLane{
			{Name: "default", Device: "d0", Queues: []int{0}, CPUs: []int{0}},
			{Name: "web", Device: "d0", Queues: []int{1, 2}, CPUs: []int{1}, Class: "1:10", Rank: 1,
				Context: 1, Departs: true},
		},
		State: &device.State{Devices: []device.Device{{
			Name: "d0", IRQs: []device.IRQ{{Number: 33, Queue: 1}, {Number: 34, Queue: 0}},
			NAPIs: []device.NAPI{{ID: 100, PID: 5, Config: device.NAPIConfig{Dev: "d0", Queue: 1}}},
			Pollers: []device.PollerState{{Poller: device.Poller{Dev: "d0", Queues: []int{2}}, PID: 6, Thread: 6,
				Doing: device.PollerAsleep, Polls: 11, Packets: 12, OthersPackets: 13, Sleeps: 14}},
		}}},
		Moment: status.Moment{
			Counters: map[string]device.Counters{"d0": {
				Rx: []device.QueueCounter{{Queue: 0, Packets: 1}, {Queue: 1, Packets: 21, Bytes: 22, Drops: 23},
					{Queue: 2}},
				Tx: []device.QueueCounter{{Queue: 1, Packets: 31}},
				Classes: []device.ClassCounter{{ID: "1:10", Packets: 41, Bytes: 42, Drops: 43, Backlog: 44},
					{ID: "1:2"}},
				Departures: []device.Departures{{Lane: 1, Waited: 81, WaitNs: 2_500_000_000, Marked: 82, Dropped: 83}},
			}},
			Received: map[string]map[status.LaneQueue]device.QueueCounter{"d0": {{Lane: "web",
				Queue: 0}: {Packets: 51, Bytes: 52}}},
			Sent: map[string]map[status.LaneQueue]device.QueueCounter{"d0": {{Lane: "web",
				Queue: 2}: {Packets: 53, Bytes: 54}, {Lane: "web", Queue: status.AnyQueue}: {Packets: 55}}},
			Interrupts: map[int]uint64{33: 61, 34: 62},
			Threads: map[int]status.Thread{5: {CPU: 1500000000, Voluntary: 71, Involuntary: 72}, 6: {CPU: 1},
				8: {CPU: 2}},
			Handlers: map[string]map[int]int{"d0": {1: 8}},
		},
	}, nil
}

// serve starts a server on a Unix socket. get sends it a request for a path.
func serve(t *testing.T, k Keeper, read func(context.Context) (Reading, error)) (get func(path string) (code int,
	body string), at Address) {
	t.Helper()
	at = Address{"unix", filepath.Join(t.TempDir(), "health.sock")}
	s, err := Serve(at, k, read)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, at.Network, at.Address)
	}}}
	return func(path string) (int, string) {
		t.Helper()
		r, err := client.Get("http://niclane" + path)
		must.Do(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		must.Do(t, err)
		return r.StatusCode, string(b)
	}, at
}

func TestMetrics(t *testing.T) {
	k := &keeper{conditions: []watch.Condition{{Config: "/l.yaml", Drifts: []string{"a"}, Left: []string{"b", "c"},
		Waits: map[string]string{"d0": "is down"}}}}
	get, _ := serve(t, k, reading)
	code, body := get("/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d\n%s", code, body)
	}
	for _, want := range []string{
		`niclane_queue_packets_total{device="d0",direction="rx",lane="web",queue="1"} 21`,
		`niclane_queue_bytes_total{device="d0",direction="rx",lane="web",queue="1"} 22`,
		`niclane_queue_drops_total{device="d0",direction="rx",lane="web",queue="1"} 23`,
		`niclane_queue_packets_total{device="d0",direction="rx",lane="default",queue="0"} 1`,
		`niclane_queue_packets_total{device="d0",direction="tx",lane="web",queue="1"} 31`,
		`niclane_queue_interrupts_total{device="d0",lane="web",queue="1"} 61`,
		`niclane_class_backlog_bytes{class="1:10",device="d0",lane="web"} 44`,
		`niclane_class_packets_total{class="1:10",device="d0",lane="web"} 41`,
		`niclane_waited_packets_total{device="d0",lane="web"} 81`,
		`niclane_wait_seconds_total{device="d0",lane="web"} 2.5`,
		`niclane_marked_packets_total{device="d0",lane="web"} 82`,
		`niclane_dropped_packets_total{device="d0",lane="web"} 83`,
		`niclane_lane_received_packets_total{device="d0",lane="web",queue="0"} 51`,
		`niclane_lane_sent_packets_total{device="d0",lane="web",queue="2"} 53`,
		`niclane_lane_sent_bytes_total{device="d0",lane="web",queue="2"} 54`,
		`niclane_lane_sent_packets_total{device="d0",lane="web",queue="any"} 55`,
		`niclane_poller_cpu_seconds_total{device="d0",kind="napi-thread",lane="web",queue="1"} 1.5`,
		`niclane_poller_cpu_seconds_total{device="d0",kind="cpumap",lane="web",queue="1"} 2e-09`,
		`niclane_poller_context_switches_total{device="d0",kind="napi-thread",lane="web",queue="1",voluntary="false"} 72`,
		`niclane_poller_packets_total{by="others",device="d0",lane="web",queue="2"} 13`,
		`niclane_poller_state{device="d0",lane="web",queue="2",state="asleep"} 1`,
		`niclane_lane_info{cpus="1",device="d0",lane="web",queues="1-2",rank="1"} 1`,
		`niclane_drift_objects{config="/l.yaml",left="true"} 2`,
		`niclane_device_waiting{config="/l.yaml",device="d0"} 1`,
		`niclane_watch_repairs_total 2`,
		`niclane_watch_last_look_timestamp_seconds 1000`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, name := range names() {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("nothing of %s in\n%s", name, body)
		}
	}
}

// names returns the names of all metrics.
func names() []string {
	var out []string
	for _, d := range newSeries().all {
		out = append(out, regexp.MustCompile(`niclane_\w+`).FindString(d.String()))
	}
	return out
}

// TestUnread: if counters cannot be read, the metrics of the watch itself are still there.
func TestUnread(t *testing.T) {
	get, _ := serve(t, &keeper{failing: "no memory"},
		func(context.Context) (Reading, error) { return Reading{}, errors.New("no such device") })
	if _, body := get("/metrics"); !strings.Contains(body, "niclane_watch_failing 1\n") {
		t.Errorf("without counters:\n%s", body)
	}
}

// TestSilentClients: many clients connect and send nothing. Other clients still get answers.
func TestSilentClients(t *testing.T) {
	get, at := serve(t, &keeper{conditions: []watch.Condition{{Config: "/l.yaml"}}}, reading)
	var all []net.Conn
	for range clients + 1 {
		c, err := net.Dial(at.Network, at.Address)
		must.Do(t, err)
		defer c.Close()
		all = append(all, c)
	}
	if n, err := all[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the oldest: read %d, %v, want its end", n, err)
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("beside them: %d", code)
	}
}

func TestHealthz(t *testing.T) {
	k := &keeper{conditions: []watch.Condition{{Config: "/l.yaml"}}}
	get, at := serve(t, k, reading)
	if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d %q", code, body)
	}
	if _, err := Serve(at, k, reading); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second one: %v", err)
	}
	for want, k := range map[string]*keeper{
		"/l.yaml: qdisc: not as niclane left it, and not repaired any more": {conditions: []watch.Condition{{Config: "/l.yaml", Left: []string{"qdisc"}}}},
		"/l.yaml: qdisc: not as niclane left it\n":                          {conditions: []watch.Condition{{Config: "/l.yaml", Drifts: []string{"qdisc"}}}},
		"/l.yaml: d0: is down":                                              {conditions: []watch.Condition{{Config: "/l.yaml", Waits: map[string]string{"d0": "is down"}}}},
		"the lanes cannot be looked at: no memory":                          {failing: "no memory"},
	} {
		get, _ := serve(t, k, reading)
		if code, body := get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			t.Errorf("%d %q, want %q", code, body, want)
		}
	}
}

// TestStale: Serve replaces the socket of a killed process, but not another file.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	at := Address{"unix", filepath.Join(dir, "s")}
	l, err := net.Listen("unix", at.Address)
	must.Do(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	s, err := Serve(at, &keeper{}, reading)
	must.Do(t, err)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, []byte("x"), 0o600))
	if s, err := Serve(Address{"unix", file}, &keeper{}, reading); err == nil {
		s.Close()
		t.Error("a file was replaced by a socket")
	}
}

func TestParseAddress(t *testing.T) {
	for _, s := range []string{"unix:/run/x.sock", "127.0.0.1:9417", "[::1]:1"} {
		if a, err := ParseAddress(s); err != nil || a.String() != s {
			t.Errorf("%s: %v, %v", s, a, err)
		}
	}
	for s, want := range map[string]string{
		"0.0.0.0:9417": "other hosts reach it", "[::]:1": "other hosts reach it", "192.0.2.1:1": "other hosts reach it",
		"unix:x": "absolute path", "9417": "want unix:PATH", "": "want unix:PATH",
	} {
		if _, err := ParseAddress(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
}

// TestDashboard: all metrics and labels in the queries of the Grafana dashboard exist.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../dist/grafana/niclane.json")
	must.Do(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	must.Do(t, json.Unmarshal(b, &d))
	asked := 0
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`\b[a-z]+_[a-z_]+\b`).FindAllString(target.Expr, -1) {
				if strings.HasPrefix(name, "niclane_") {
					asked++
				}
				if strings.HasPrefix(name, "niclane_") && !slices.Contains(names(), name) {
					t.Errorf("panel %q asks for %s, which is not there", p.Title, name)
				}
			}
			labels := regexp.MustCompile(`\{\{(\w+)\}\}|by \(([\w, ]+)\)|(\w+)=~?"`).FindAllStringSubmatch(target.Expr+
				" "+target.LegendFormat, -1)
			for _, m := range labels {
				for _, label := range strings.Split(m[1]+m[2]+m[3], ",") {
					if !labelled(target.Expr, strings.TrimSpace(label)) {
						t.Errorf("panel %q: %s has no label %s", p.Title, target.Expr, label)
					}
				}
			}
		}
	}
	if asked < 10 {
		t.Errorf("%d series are asked for", asked)
	}
}

// labelled reports whether one of the metrics in a query has a label.
func labelled(expr, label string) bool {
	return slices.ContainsFunc(newSeries().all, func(d *prometheus.Desc) bool {
		name := regexp.MustCompile(`niclane_\w+`).FindString(d.String())
		has := regexp.MustCompile(`variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		return regexp.MustCompile(`\b`+name+`\b`).MatchString(expr) && len(has) > 1 &&
			slices.Contains(strings.Split(has[1], ","), label)
	})
}

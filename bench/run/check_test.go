// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/servetest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/config"
)

// TestDescribeSLAs: the description of a run lists its SLAs.
func TestDescribeSLAs(t *testing.T) {
	f := parse(t, "title: a test", "title: a test\nsla: [{percentile: 99, at: 1ms}, {percentile: 99.99, at: 500us}]")
	var b strings.Builder
	if err := Describe(&b, f); err != nil {
		t.Fatal(err)
	}
	errtest.Has(t, "what is said before", b.String(), "sla: P99 at most 1ms\nsla: P99.99 at most 500us\n")
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"key": {"title: a test", "titel: a test", "test.yaml:2: titel"},
		"datagram": {"rate: 30%", "rate: 30%, protocol: udp, segment: 1473",
			"test.yaml:11: noise[0].segment: found 1473 with protocol: udp, want at most 1472"},
		"power": {"repeats:", "power: {source: redfish, url: \"https://bmc\", credentials: " +
			"/no/such/file}\nrepeats:", "test.yaml:15: power: power: redfish: open /no/such/file: no such file"},
		"program": {"kind: niclane", "kind: command, command: [no-such-program]", "no-such-program"},
		"lanes file": {"{name: noisy}", "{name: noisy, lanes-file: bad-lanes.yaml}",
			"test.yaml:14: variants[1].lanes-file: bad-lanes.yaml:1: globals is missing"},
		"no file": {"{name: noisy}", "{name: noisy, lanes-file: none.yaml}", "no such file"},
		"too large": {"title: a test", "title: a test\n#" + strings.Repeat("x", maxFile),
			"test.yaml: larger than 1048576 bytes"},
		"shares": {"repeats:", "search: {max-rate: {from: 1000, to: 4000}, latency-at: [20%]}\nrepeats:",
			"search.latency-at: only 10%, 50%, 90% are supported"},
		"lanes": {"{name: noisy}", "{name: noisy, lanes: \"version: 1\\nlane: {}\\n\"}",
			"test.yaml:14: variants[1].lanes: lane"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "bad-lanes.yaml"), []byte("version: 1\nlane: {}\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "test.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(file, c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadOn(path, nil)
		errtest.Says(t, name, err, c.want)
	}
}

func TestForce(t *testing.T) {
	const lanes = "version: 1\nglobals:\n  dev: eth0\n  force: {mapper: other}\nlanes:\n  a:\n    queues: 2\n    " +
		"protocol: tcp\n    ports: [80]\n"
	text, err := force(lanes, map[string]string{"steering": "ntuple"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := config.Parse("x", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if strings.Contains(text, "mapper") || !strings.Contains(text, "steering: ntuple") || len(in.Lanes) == 0 {
		t.Errorf("forced:\n%s", text)
	}
	if _, err := force("version: 1\n", nil); err == nil {
		t.Error("no globals, and no error")
	}
}

// TestLanesWithoutCgroup: without a control group for the server, its lane has no cgroup.
func TestLanesWithoutCgroup(t *testing.T) {
	v := experiment.Variant{Name: "lane", Lanes: "version: 1\nglobals: {dev: $device}\nlanes:\n  a:\n    queues: " +
		"1\n    ports: [$port]\n    cgroup: $cgroup  # the server's\n"}
	values := map[string]string{experiment.NameDevice: "eth0", experiment.NamePort: "80", experiment.NameCgroup: "/g"}
	with, err := lanesOf(nil, v, values)
	if err != nil || !strings.Contains(with, "cgroup: /g") {
		t.Errorf("%v\n%s", err, with)
	}
	values[experiment.NameCgroup] = ""
	without, err := lanesOf(nil, v, values)
	if err != nil || strings.Contains(without, "cgroup") {
		t.Errorf("%v\n%s", err, without)
	}
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func TestAnswering(t *testing.T) {
	s, err := memserver.Listen(memserver.Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	servetest.Start(t, s.Serve)
	web := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			http.NotFound(w, r)
		}
	}
	plain, secure := httptest.NewServer(http.HandlerFunc(web)), httptest.NewTLSServer(http.HandlerFunc(web))
	defer plain.Close()
	defer secure.Close()
	addr := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	up := func() error { return nil }
	for name, c := range map[string]struct {
		address string
		q       ready.Question
		want    string
	}{
		"memcached": {s.Addr().String(), ready.Question{Protocol: experiment.ProtocolMemcached}, ""},
		"http":      {addr(plain), ready.Question{Protocol: experiment.ProtocolHTTP, Host: "x", Path: "/there"}, ""},
		"https":     {addr(secure), ready.Question{Protocol: experiment.ProtocolHTTPS, Host: "x", Path: "/there"}, ""},
		"tcp":       {addr(plain), ready.Question{Protocol: experiment.ProtocolTCP}, ""},
		"not found": {addr(plain), ready.Question{Protocol: experiment.ProtocolHTTP, Host: "x", Path: "/no"},
			`answered "404 Not Found" to GET /no, want 200`},
		"other":        {s.Addr().String(), ready.Question{Protocol: experiment.ProtocolRESP}, "want \"+PONG\""},
		"nobody there": {"127.0.0.1:1", ready.Question{Protocol: experiment.ProtocolTCP}, "connection refused"},
	} {
		errtest.Says(t, name, ready.Ask(context.Background(), dialTCP, c.address, c.q), c.want)
	}
	nobody := func(ctx context.Context) error {
		return ready.Ask(ctx, dialTCP, "127.0.0.1:1", ready.Question{Protocol: experiment.ProtocolTCP})
	}
	err = until(context.Background(), "tcp at 127.0.0.1:1", nobody, 50*time.Millisecond, up)
	errtest.Says(t, "nobody there", err, "tcp at 127.0.0.1:1 does not answer within 50ms: ")
	gone := func() error { return os.ErrProcessDone }
	if err := until(context.Background(), "tcp at 127.0.0.1:1", nobody, time.Hour, gone); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a server that has ended: %v", err)
	}
}

func TestGenerators(t *testing.T) {
	f := parse(t, "connections: 4", "connections: 5\n  generators: 3", "repeats:",
		"placement: {generator: {cpus: 0-1, fifo: 3}}\nrepeats:")
	configs, err := generators(f, []string{"10.0.0.1:11211"}, Job{Rate: 900, Connections: 5, Window: 1e9, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	connections, rate, seeds := 0, 0.0, map[uint64]bool{}
	for i, c := range configs {
		connections += c.Connections
		rate += c.Rate
		seeds[c.Seed] = true
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if c.SetShare != 0.1 || c.Arrivals != load.Poisson || c.ConnectRate != 0 || c.Nagle {
			t.Errorf("generator %d: %+v", i, c)
		}
	}
	f.Experiment.Load.ConnectRate, f.Experiment.Load.ConnectTimeout, f.Experiment.Load.Nagle = 120, 1e9, true
	f.Experiment.Load.Arrivals = "constant"
	paced, err := generators(f, []string{"10.0.0.1:11211"}, Job{Rate: 900, Connections: 5, Window: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range paced {
		if c.ConnectRate != 40 || c.ConnectTimeout != 1e9 || !c.Nagle || c.Arrivals != load.Constant {
			t.Errorf("a third of 120 connections per second: %+v", c)
		}
	}
	if got, want := f.Experiment.Load.Lead(240)-new(experiment.Load).Lead(240), int64(2e9); got != want {
		t.Errorf("240 connections at 120 per second: %d ns more, want %d", got, want)
	}
	for i, at := range InLab(f, "v1", "niclane-bench").(*labSite).seats(3) {
		if at.host != lab.Client || len(at.CPUs) != 1 || at.CPUs[0] != i%2 || at.FIFO != 3 {
			t.Errorf("seat %d: %+v", i, at)
		}
	}
	if connections != 5 || rate != 900 || len(seeds) != 3 {
		t.Errorf("%d connections, %v/s, %d seeds; want 5, 900, 3", connections, rate, len(seeds))
	}
}

func TestObjects(t *testing.T) {
	f := parse(t)
	w := &f.Experiment.Workload
	*w = experiment.Workload{Protocol: experiment.ProtocolHTTPS,
		TLS:     &experiment.TLS{Version: "1.3", Authority: "ca.pem"},
		Objects: []experiment.Object{{Path: "/a/$n", Copies: 3, Bytes: 10, Weight: 2}}}
	configs, err := generators(f, []string{"10.0.0.1:443"}, Job{Rate: 100, Connections: 1, Window: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	c := configs[0]
	if len(c.Objects.Paths) != 3 || c.Objects.Paths[2].Path != "/a/3" || c.Objects.Paths[2].Weight != 2 {
		t.Errorf("paths %+v", c.Objects.Paths)
	}
	if c.TLS.Min != "1.3" || c.TLS.Max != "1.3" || c.TLS.CAFile != "ca.pem" || c.TLS.Insecure {
		t.Errorf("TLS %+v", c.TLS)
	}
	if len(c.Objects.Headers) != 1 || c.Objects.Headers[0] != "Connection: close" {
		t.Errorf("headers %q of keep-alive: off", c.Objects.Headers)
	}
}

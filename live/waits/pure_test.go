// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/traffic/wait"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/live/services"
)

func inventory() *services.Inventory {
	all := []netip.Addr{netip.IPv4Unspecified()}
	return &services.Inventory{
		Services: []services.Service{
			{Name: "memcached", Processes: []services.Process{{PID: 7}}, Endpoints: []services.Endpoint{
				{Protocol: "tcp", Port: 11211, Addrs: all, Devices: []string{"eth0"}},
				{Protocol: "udp", Port: 11211, Addrs: all, Devices: []string{"eth0"}}}},
			{Name: "nginx", Processes: []services.Process{{PID: 8}}, Endpoints: []services.Endpoint{
				{Protocol: "tcp", Port: 80, Addrs: all, Devices: []string{"eth0", "eth1"}},
				{Protocol: "tcp", Port: 443, Addrs: all, Devices: []string{"eth0", "eth1"}}}},
			{Name: "admin", Endpoints: []services.Endpoint{
				{Protocol: "tcp", Port: 8080, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}},
			{Name: "client", Endpoints: []services.Endpoint{
				{Protocol: "udp", Port: 40000, Addrs: all, Devices: []string{"eth0"}, Ephemeral: true}}},
		},
		Elsewhere: []services.Namespace{{ID: 4026531999, Process: services.Process{PID: 9, Name: "redis"},
			PIDs: []int{9, 10}, Container: strings.Repeat("ab", 32), Listening: []string{"tcp/6379"}}},
	}
}

// TestTargets: which services are measured, under which names and in which lanes.
func TestTargets(t *testing.T) {
	lanes := []intent.Lane{{Name: "cache", Members: []intent.Member{{Protocol: "tcp", Ports: []uint16{11211, 6379}}}}}
	for name, c := range map[string]struct {
		lanes  []intent.Lane
		choice Choice
		want   string // name, lane, protocol and ports of each
		err    string
	}{
		"all": {want: "memcached-11211/tcp tcp [11211]; memcached-11211/udp udp [11211]; nginx tcp [80 443]"},
		"lanes": {lanes: lanes, want: "memcached-11211/tcp cache tcp [11211]; memcached-11211/udp udp [11211]; " +
			"nginx tcp [80 443]; redis cache tcp [6379]"},
		"a lane":            {lanes: lanes, choice: Choice{Lane: "cache"}, want: "memcached cache tcp [11211]; redis cache tcp [6379]"},
		"a device":          {choice: Choice{Device: "eth1"}, want: "nginx tcp [80 443]"},
		"a port":            {choice: Choice{Query: services.Query{Port: 80}}, want: "nginx tcp [80]"},
		"a local one":       {choice: Choice{Query: services.Query{Port: 8080}}, want: "admin tcp [8080]"},
		"a protocol":        {choice: Choice{Query: services.Query{Port: 11211, Protocol: "udp"}}, want: "memcached udp [11211]"},
		"a process":         {choice: Choice{Query: services.Query{PID: 8}}, want: "nginx tcp [80 443]"},
		"a pod":             {choice: Choice{Query: services.Query{Container: "abababababab"}}, want: "redis tcp [6379]"},
		"a worker of a pod": {choice: Choice{Query: services.Query{PID: 10}}, want: "redis tcp [6379]"},
		"no lane":           {choice: Choice{Lane: "x"}, err: "no lane x is in force"},
		"no port":           {choice: Choice{Query: services.Query{Port: 81}}, err: "nothing listens at tcp or udp port 81 here"},
		"no service":        {choice: Choice{Device: "eth2"}, err: "no such service is reached by eth2"},
		"an empty lane": {lanes: []intent.Lane{{Name: "y", Members: []intent.Member{{Protocol: "tcp", Ports: []uint16{1}}}}},
			choice: Choice{Lane: "y"}, err: "nothing listens at the ports of lane y"},
	} {
		t.Run(name, func(t *testing.T) {
			targets, _, err := Targets(inventory(), c.lanes, c.choice)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			must.Do(t, err)
			var got []string
			for _, x := range targets {
				words := fmt.Sprintf("%s %s %s %d", x.Name, x.Lane, x.Protocol, x.Ports)
				got = append(got, strings.Join(strings.Fields(words), " "))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// service returns a service with n requests that wait the given times in each stage.
func service(n int, waits ...time.Duration) Service {
	x := Service{Target: Target{Name: "s", Protocol: "tcp", Ports: []uint16{1}}, Requests: uint64(n)}
	for st := range Stages {
		x.Waits[st] = &Histogram{}
	}
	for range n {
		var sum time.Duration
		for st, w := range waits {
			x.Waits[st].Record(int64(w))
			sum += w
		}
		x.Waits[Host].Record(int64(sum))
	}
	return x
}

// TestVerdict: which wait is the longest, and which key shortens it.
func TestVerdict(t *testing.T) {
	us := time.Microsecond
	by := func(what string) []Culprit {
		return []Culprit{{Share: 0.62, What: what, Where: "receive queue 3 of eth0"}}
	}
	for name, c := range map[string]struct {
		waits    []time.Duration
		n        int
		stage    Stage
		culprits []Culprit
		want     []string
	}{
		"none": {n: 0, want: []string{"No request was seen."}},
		"few":  {n: 10, waits: []time.Duration{us}, want: []string{"10 requests are too few"}},
		"a neighbour": {n: 1000, waits: []time.Duration{90 * us, us, us, us, us}, culprits: by("port 9100/tcp"),
			want: []string{"Most of the P99 is between card and stack",
				"62 % of the time above P99 was behind port 9100/tcp on receive queue 3 of eth0.", "`queues`"}},
		"a thread": {n: 1000, waits: []time.Duration{90 * us, us, us, us, us}, culprits: by("stress (4711)"),
			want: []string{"The thread that polls waited for a processor", "`poller-priority`"}},
		"moderation": {n: 1000, waits: []time.Duration{90 * us, us, us, us, us}, want: []string{"`poller: busy`"}},
		"a processor": {n: 1000, waits: []time.Duration{us, us, 90 * us, us, us}, stage: SocketToApp, culprits: by("stress (4711)"),
			want: []string{"a processor, not for a card", "`cpus`"}},
		"busy": {n: 1000, waits: []time.Duration{us, us, 90 * us, us, us}, stage: SocketToApp, culprits: by("s itself"),
			want: []string{"busy with other requests: a processor, not a card"}},
		"asleep": {n: 1000, waits: []time.Duration{us, us, 90 * us, us, us}, stage: SocketToApp, culprits: by(idleWords),
			want: []string{"`poller: application`"}},
		"packets": {n: 1000, waits: []time.Duration{us, us, 90 * us, us, us}, stage: SocketToApp, culprits: by(softirqWords),
			want: []string{"handled received packets", "`cpus`"}},
		"slow": {n: 1000, waits: []time.Duration{us, us, us, 90 * us, us}, stage: App,
			want: []string{"the service's own time. A lane does not shorten it"}},
		"the qdisc": {n: 1000, waits: []time.Duration{us, us, us, us, 90 * us}, stage: SocketToCard, culprits: by("lane bulk"),
			want: []string{"`rank` or a `guarantee`"}},
		"even": {n: 1000, waits: []time.Duration{us, us, us, us, us}, want: []string{"No wait has most of the P99"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := service(c.n, c.waits...)
			x.Culprits = map[Stage][]Culprit{c.stage: c.culprits}
			got := strings.Join(x.Verdict(), " ")
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q\nhas no %q", got, want)
				}
			}
		})
	}
}

// TestFront: a slow wait is divided among what had the processor meanwhile.
func TestFront(t *testing.T) {
	c := &Collector{names: map[int]string{2: "eth0"}}
	c.opts.Targets = []Target{{Name: "s", Protocol: "tcp", Ports: []uint16{80}}, {Name: "bulk", Lane: "big", Protocol: "tcp", Ports: []uint16{9100}}}
	var x Service
	add := func(s wait.Sample) { x.fronts[s.Stage].add(s, c.namer(s)) }
	// From 100 to 200: port 5201 until 120, lane big until 180, the service itself until 200.
	add(wait.Sample{From: 100, To: 200, Stage: int(CardToStack), IfIndex: 2, Queue: 4, Past: []wait.Past{
		{At: 180, Protocol: 6, Source: 40000, Dest: 80}, {At: 120, Protocol: 6, Source: 40001, Dest: 9100},
		{At: 50, Protocol: 6, Source: 5201, Dest: 50000}}})
	// From 0 to 100: nothing is remembered before 50.
	add(wait.Sample{From: 0, To: 100, Stage: int(SocketToApp), CPU: 1, PID: 7, Past: []wait.Past{
		{At: 75, PID: 7, Comm: "s"}, {At: 50, PID: 9, Comm: "stress"}}})
	// From 0 to 100: a thread has the queue's processor until 90, then the NAPI's thread, which gives the sample.
	add(wait.Sample{From: 0, To: 100, Stage: int(CardToStack), IfIndex: 2, Queue: 4, CPU: 1, PID: 5, Past: []wait.Past{
		{At: 90, PID: 5, Comm: "napi/eth0-8"}, {At: 0, PID: 9, Comm: "stress"}}})
	want := map[Stage][]Culprit{
		CardToStack: {{Share: 0.45, What: "stress (9)", Where: "processor 1"},
			{Share: 0.3, What: "lane big", Where: "receive queue 3 of eth0"},
			{Share: 0.1, What: "remote port 5201/tcp", Where: "receive queue 3 of eth0"},
			{Share: 0.1, What: "s itself", Where: "receive queue 3 of eth0"},
			{Share: 0.05, What: "napi/eth0-8 (5)", Where: "processor 1"}},
		SocketToApp: {{Share: 0.5, What: "s itself", Where: "processor 1"}, {Share: 0.5, What: "stress (9)", Where: "processor 1"}},
	}
	if diff := cmp.Diff(want, x.culprits()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f := x.fronts[SocketToApp]; f.total != 100 || f.known != 50 {
		t.Errorf("total %d, known %d, want 100 and 50", f.total, f.known)
	}
	same := x.fronts[CardToStack].sub(x.fronts[CardToStack].clone())
	for p, d := range same.by {
		if d != 0 {
			t.Errorf("%v has %d after subtraction of itself", p, d)
		}
	}
}

// TestChoose: the pace keeps the cost below the limit.
func TestChoose(t *testing.T) {
	for _, allowed := range []float64{0, 1e5, 1e6, 1e7, 5e7, 1e9} {
		for _, rates := range [][2]rate{{{cpu: 1e6}, {cpu: 2e6}}, {{cpu: 5e7}, {cpu: 9e7}}, {{cpu: 5e8}, {cpu: 5e8}}, {{}, {}}} {
			p := choose(allowed, rates)
			if p.follow < leastFollow || p.follow > 1 || p.threads < 0 || p.threads > p.follow {
				t.Errorf("%g, %v: %v", allowed, rates, p)
			}
			cost := p.follow*rates[0].cpu + p.threads*(rates[1].cpu-rates[0].cpu)
			if cost > max(allowed, 1e6) && p.follow > leastFollow {
				t.Errorf("%g, %v: %v costs %g", allowed, rates, p, cost)
			}
			if p.follow < 1 && cost < 0.5*allowed {
				t.Errorf("%g, %v: %v costs only %g", allowed, rates, p, cost)
			}
		}
	}
}

// TestSpent: the cost is that of the time in which the programs were attached.
func TestSpent(t *testing.T) {
	m := newMeter(Options{MaxCost: 0.05})
	m.spent(time.Second, false, &rate{cpu: 1e6, runs: 10})
	m.spent(2*time.Second, false, nil)
	m.spent(time.Second, true, &rate{cpu: 5e6, runs: 50})
	if c := m.cost(); c.CPU != 8*time.Millisecond || c.Runs != 80 {
		t.Errorf("%+v, want 8 ms and 80 runs", c)
	}
	m.unknown = "no"
	if c := m.cost(); c != (Cost{Unknown: "no"}) {
		t.Errorf("%+v", c)
	}
}

// TestFinished: when slices cut off more than one of 2,000 requests, the programs stay attached longer.
func TestFinished(t *testing.T) {
	m := newMeter(Options{FixedRate: true, SampleRate: 0.1})
	var sum wait.Counts
	for _, x := range []struct {
		requests, cut uint64        // since the last slice
		finish        time.Duration // at least
	}{
		{100, 1, 10 * time.Millisecond}, // one can be chance
		{100, 1, 20 * time.Millisecond},
		{4000, 1, 20 * time.Millisecond},
		{4000, 0, 10 * time.Millisecond},
		{4000, 0, 10 * time.Millisecond},
		{4000, 3, 20 * time.Millisecond},
		{4000, 3, 40 * time.Millisecond},
		{500, 1, 40 * time.Millisecond},
		{500, 1, 80 * time.Millisecond},
		{1, 99, 160 * time.Millisecond},
		{1, 99, 320 * time.Millisecond},
		{1, 99, 640 * time.Millisecond},
		{1, 99, time.Second},
		{1, 99, time.Second},
	} {
		sum.Requests += x.requests
		sum.Seen += x.requests + x.cut
		sum.Lost, sum.Unpaired, sum.Seen = sum.Lost+5, sum.Unpaired+5, sum.Seen+10 // of these, the end is known
		m.finished([]wait.Counts{sum})
		if m.finish = m.leastFinish; m.finish != x.finish { // no request has an end that takes longer
			t.Fatalf("%+v: the programs stay for %v", x, m.finish)
		}
	}
	if p := m.pause(); p != 8*time.Second {
		t.Errorf("pause %v after a slice of %v, want 8s", p, m.length())
	}
}

// TestMissing: what a kernel does not show is named.
func TestMissing(t *testing.T) {
	all := []string{"kfree_skb", "sk_data_ready", "sock_send_length"}
	for name, c := range map[string]struct {
		has    []string
		stages []Stage
		notes  int
	}{
		"Linux 6.3":  {all, nil, 0},
		"Linux 5.17": {all[:1], []Stage{StackToSocket, SocketToCard}, 0},
		"Linux 5.10": {nil, []Stage{StackToSocket, SocketToCard}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, notes := missing(c.has, "/sys/fs/cgroup", true, Options{Targets: []Target{{Protocol: "tcp"}, {Protocol: "udp"}}})
			if got := slices.Sorted(maps.Keys(out)); !slices.Equal(got, c.stages) || len(notes) != c.notes {
				t.Errorf("%v and %q, want %v and %d notes", out, notes, c.stages, c.notes)
			}
		})
	}
}

func TestText(t *testing.T) {
	x := service(2000, 5*time.Microsecond, 2*time.Microsecond, 30*time.Microsecond, 12*time.Microsecond, 3*time.Microsecond)
	x.Lane = "cache"
	x.Culprits = map[Stage][]Culprit{SocketToApp: {{Share: 0.62, Above: 29000, What: "stress (9)", Where: "processor 1"},
		{Share: 0.05, What: "other (8)", Where: "processor 1"}}}
	x.Retransmits, x.Unfinished = 3, 3
	s := Snapshot{Duration: 10 * time.Second, Followed: 2500 * time.Millisecond, SampleRate: 0.25,
		Cost: Cost{CPU: 12 * time.Millisecond, Share: 0.012}, Lost: 2,
		Services: []Service{x, service(0)}, Missing: map[Stage]string{Card: "lane0 is a virtual device"}}
	s.Services[1].Name = "idle"
	var b strings.Builder
	must.Do(t, s.Report("lane0", "left out").Write(&b))
	const want = `Waits of lane0, 10s, requests followed in 25 % of the time.
Its own cost: 12 ms of processor time, 1.2 % of the services'.

s, lane cache, tcp 1: 2000 requests, 800/s
                         P50      P90      P99    P99.9
      card-to-stack  5.02 us  5.02 us  5.02 us  5.02 us  ===
    stack-to-socket  2.01 us  2.01 us  2.01 us  2.01 us  =
      socket-to-app  30.1 us  30.1 us  30.1 us  30.1 us  =================
                app    12 us    12 us    12 us    12 us  =======
     socket-to-card  2.99 us  2.99 us  2.99 us  2.99 us  ==
               host    52 us    52 us    52 us    52 us  ==============================
  socket-to-app above 29 us: 62 % behind stress (9) on processor 1
  3 segments retransmitted
  3 requests are not in this table: their answer was not seen
`
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, b.String()))
	}
	s.Services[0].Unfinished = 1 // that one does not change P99.9
	var few strings.Builder
	must.Do(t, s.Report("lane0").Write(&few))
	if strings.Contains(few.String(), "not in this table") {
		t.Error(few.String())
	}
	for _, end := range []string{"\nidle, tcp 1: 0 requests, 0/s\n", "\n2 requests or samples are lost: ",
		"\nNote: left out.\nNote: card: lane0 is a virtual device.\n"} {
		if !strings.Contains(b.String(), end) {
			t.Errorf("no %q in\n%s", end, b.String())
		}
	}
}

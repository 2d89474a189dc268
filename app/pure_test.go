// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		name              string
		queues, listeners []int
		want              [][]int
	}{
		{"one each", []int{0, 1}, []int{1, 0}, [][]int{{1, 1}, {0, 0}}},
		{"more queues than listeners", []int{0, 1, 2, 3}, []int{0, 1}, [][]int{{0, 0}, {1, 1}, {0, 0}, {1, 1}}},
		{"more listeners than queues", []int{0, 1}, []int{0, 0, 1, 1}, [][]int{{0, 0, 1, 1}, {2, 2, 3, 3}}},
		{"three queues, two listeners", []int{0, 1, 2}, []int{0, 1}, [][]int{{0, 0}, {1, 1}, {0, 1}}},
		{"all queues on one processor: no collapse", []int{1, 1}, []int{0, 1}, [][]int{{1, 1}, {0, 0}}},
		{"no listener where the queues are", []int{4, 4}, []int{0, 1}, [][]int{{0, 0}, {1, 1}}},
		{"a listener that is nowhere", []int{0, 1}, []int{0, unknown}, [][]int{{0, 0}, {1, 1}}},
		{"a queue that is nowhere", []int{0, unknown}, []int{0, 1}, [][]int{{0, 1}, nil}},
		{"no listener is known", []int{0, 1}, []int{unknown, unknown}, [][]int{nil, nil}},
		{"no queue is known", []int{unknown}, []int{0, 1}, [][]int{nil}},
		{"nothing", nil, nil, [][]int{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, spread(c.queues, c.listeners)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzSpread: spread gives every listener the same share.
func FuzzSpread(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, []byte{0, 1})
	f.Add([]byte{1, 1, 1}, []byte{0, 1, 1, 255})
	f.Fuzz(func(t *testing.T, qs, ls []byte) {
		if len(qs) > 40 || len(ls) > 40 {
			return
		}
		cpus := func(bs []byte) (out []int) {
			for _, b := range bs {
				cpu := int(b % 9)
				if cpu == 8 {
					cpu = unknown
				}
				out = append(out, cpu)
			}
			return out
		}
		queues, listeners := cpus(qs), cpus(ls)
		got := spread(queues, listeners)
		count := make([]int, len(listeners))
		for q, list := range got {
			if len(list) != 0 && len(list) != len(listeners) {
				t.Fatalf("queue %d has %d places of %d", q, len(list), len(listeners))
			}
			for _, l := range list {
				count[l]++
			}
		}
		if len(count) > 0 && slices.Min(count) != slices.Max(count) {
			t.Errorf("queues %v, listeners %v: %v", queues, listeners, count)
		}
	})
}

func TestParse(t *testing.T) {
	st, err := parseStat("42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0")
	if err != nil || st != (stat{state: 'S', parent: 7, start: 98765}) {
		t.Errorf("%+v, %v", st, err)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) S 7", "42 (a) S x 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 98765"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if diff := cmp.Diff(map[string]string{"net_cls,net_prio": "/a", "": "/b:c", "name=systemd": "/"},
		parseMembership("3:net_cls,net_prio:/a\n1:name=systemd:/\n0::/b:c\n")); diff != "" {
		t.Error(diff)
	}
	for line, want := range map[string]uint64{
		"tfd:        5 events:       19 data: 7f0012345678  pos:0 ino:9a3f sdev:8": 0x9a3f,
		"tfd:        5 events:       19 data: 0":                                   0,
		"pos:	0":                                                                   0,
	} {
		if got, _ := targetInode(line); got != want {
			t.Errorf("%q: %x, want %x", line, got, want)
		}
	}
	for text, want := range map[string]int{"running\n": -1, "-1 0x7ff 0x55\n": -1, "0 0x5 0x1\n": -1} {
		if fd, ok := epollOf(text); ok {
			t.Errorf("%q: %d, want %d", text, fd, want)
		}
	}
	if n, ok := socketInode("socket:[123]"); !ok || n != 123 {
		t.Error(n, ok)
	}
}

// TestServers: two listeners share one epoll instance, and no epoll instance watches a third. In
// both cases servers does not find the thread, and says why.
func TestServers(t *testing.T) {
	self := os.Getpid()
	d := descriptors{
		holders: map[uint64][]holder{1: {{self, 3}}, 2: {{self, 4}}, 3: {{self, 5}}},
		epolls:  []epoll{{self, 10, []uint64{1, 2}}},
	}
	got := d.servers()
	for inode := range uint64(2) {
		if s := got[inode+1]; s.tid != 0 || s.pid != self || s.why == "" {
			t.Errorf("listener %d: %+v: any thread of this process can take its connections", inode+1, s)
		}
	}
	if s := got[3]; s.pid != 0 || s.why == "" {
		t.Errorf("nobody watches listener 3: %+v", s)
	}
	for name, c := range map[string]struct {
		seen map[int][]int
		want int
	}{
		"one":        {map[int][]int{10: {5}, 11: {6}}, 5},
		"nobody":     {map[int][]int{11: {6}}, 0},
		"several":    {map[int][]int{10: {5, 6}}, 0},
		"everywhere": {map[int][]int{10: {5}, 11: {5}}, 0},
	} {
		if s := waiter(1, 10, c.seen); s.tid != c.want || (s.tid == 0) != (s.why != "") {
			t.Errorf("%s: %+v, want thread %d", name, s, c.want)
		}
	}
}

func TestConfine(t *testing.T) {
	st := &device.State{Devices: []device.Device{{Name: "eth0", Node: 1}, {Name: "lo", Node: -1}}}
	for cpu := range 8 {
		st.CPUs = append(st.CPUs, device.CPU{ID: cpu, Online: cpu != 7, Node: cpu / 4})
	}
	on := func(dev string, cpus ...int) []plan.FittedLane { return []plan.FittedLane{{Device: dev, CPUs: cpus}} }
	for _, c := range []struct {
		name       string
		lane       Lane
		cpus, mems []int
	}{
		{"named", Lane{Named: true, Fitted: on("eth0", 3, 4)}, []int{3, 4}, []int{0, 1}},
		{"the card's node", Lane{Fitted: on("eth0", 4)}, []int{4, 5, 6}, []int{1}},
		{"apart from the lane's", Lane{Named: true, Fitted: on("eth0", 3, 4), AppCPUs: []int{5, 6}},
			[]int{5, 6}, []int{1}},
		{"and nodes", Lane{Named: true, Fitted: on("eth0", 3), AppCPUs: []int{5}, AppMems: []int{0, 1}}, []int{5},
			[]int{0, 1}},
		{"no node", Lane{Fitted: on("lo", 4)}, nil, nil},
		{"no device", Lane{Fitted: on("eth9", 4)}, nil, nil},
	} {
		cpus, mems := c.lane.confine(st)
		if !slices.Equal(cpus, c.cpus) || !slices.Equal(mems, c.mems) {
			t.Errorf("%s: processors %v, nodes %v", c.name, cpus, mems)
		}
	}
}

func TestFind(t *testing.T) {
	made := func(config, text string, lanes ...plan.FittedLane) *journal.Journal {
		p := &plan.Plan{Devices: []string{"eth0"}, Lanes: lanes, Steps: []plan.Step{
			{New: device.CgroupClass{Cgroup: "/db", Priority: "1:10"}, Cause: "lanes.db.members[0].cgroup"},
			{New: device.CgroupClass{Cgroup: "/dbx", Priority: "1:20"}, Cause: "lanes.dbx"},
		}}
		j := journal.New(journal.Head{Config: config, ConfigText: text, Plan: p})
		for i := range p.Steps {
			if err := j.Begin(i); err != nil {
				t.Fatal(err)
			}
		}
		return j
	}
	const text = "version: 1\nglobals: {dev: eth0}\nlanes: {db: {queues: 2, cpus: 2-3, ports: [80], cgroup: /db}}\n"
	db := plan.FittedLane{Name: "db", Device: "eth0", Queues: []int{2, 3}, CPUs: []int{2, 3}}
	one := made("/a.yaml", text, plan.FittedLane{Name: intent.DefaultLane, Device: "eth0"}, db)
	l, err := Find([]*journal.Journal{one}, "db", "")
	if err != nil {
		t.Fatal(err)
	}
	if !l.Named || !l.ByGroup || l.Class != "1:10" || !slices.Equal(l.Groups(), []string{"/db"}) ||
		!slices.Equal(l.Ports("tcp"), []uint16{80}) {
		t.Errorf("%+v", l)
	}
	two := made("/b.yaml", text, db)
	for _, c := range []struct {
		js         []*journal.Journal
		name, file string
		want       string
	}{
		{[]*journal.Journal{one}, "web", "", `no lane "web" is applied here: there is db (/a.yaml)`},
		{[]*journal.Journal{one, two}, "db", "", "lane db is applied from /a.yaml and /b.yaml: give one of these files"},
		{[]*journal.Journal{one, two}, "db", "/b.yaml", ""},
		{nil, "db", "", `no lane "db" is applied here, nor any other: niclane apply first`},
		{[]*journal.Journal{one}, "db", "/c.yaml", "no lane of /c.yaml is applied here: niclane apply /c.yaml first"},
		{[]*journal.Journal{journal.New(journal.Head{Config: "/a.yaml",
			Plan: &plan.Plan{Lanes: []plan.FittedLane{db}}})}, "db", "",
			`no lane "db" is applied here, nor any other: niclane apply first`},
	} {
		_, err := Find(c.js, c.name, c.file)
		if got := message(err); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.name, c.file, got, c.want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

var further = netip.MustParseAddr("192.0.2.7")

func TestConfig(t *testing.T) {
	tests := []struct {
		name string
		c    Config
		want string // part of the error; "": no error
	}{
		{"defaults", Config{}, ""},
		{"name", Config{Name: "A"}, `name "A"`},
		{"further address in the lab's network", Config{Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.9")}},
			"address 10.77.0.9"},
		{"further addresses", Config{Addresses: []netip.Addr{further, netip.MustParseAddr("2001:db8::7")}}, ""},
		{"the same further address twice", Config{Addresses: []netip.Addr{further, further}}, "address 192.0.2.7"},
		{"name with a slash", Config{Name: "a/b"}, `name "a/b"`},
		{"as many queues as there are", Config{Queues: MaxQueues}, ""},
		{"too many queues", Config{Queues: MaxQueues + 1}, "queues: 129"},
		{"link too slow", Config{LinkRate: 1000}, "link rate"},
		{"burst below a frame", Config{LinkBurst: 100}, "link burst"},
		{"buffer below the burst", Config{SwitchBuffer: 5000}, "switch buffer"},
		{"mark above the buffer", Config{SwitchMark: 1 << 20}, "switch mark"},
		{"no DSCP", Config{SwitchFirst: []int{46, 64}}, "DSCP 1 that goes first: 64"},
		{"DSCP without a card", Config{SwitchFirst: []int{46}, Card: CardNone}, "want a card"},
		{"delay", Config{Delay: 2e9}, "delay in ns"},
		{"packet cost", Config{PacketCost: 2e6}, "packet cost in ns"},
		{"MTU", Config{MTU: 100}, "MTU"},
		{"noise segment", Config{NoiseSegment: 100}, "noise segment"},
		{"processor offline", Config{SUTCPUs: []int{9}}, "SUT processor 9 is not online"},
		{"no processor", Config{OtherCPUs: []int{}}, "other processors: none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.c.complete([]int{0, 1, 2, 3})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestConfigProcessors(t *testing.T) {
	tests := []struct{ online, sut, others []int }{
		{[]int{0}, []int{0}, []int{0}},
		{[]int{0, 1}, []int{1}, []int{0}},
		{[]int{0, 2, 3}, []int{2, 3}, []int{0}},
	}
	for _, tt := range tests {
		c, err := Config{}.complete(tt.online)
		if err != nil || !slices.Equal(c.SUTCPUs, tt.sut) || !slices.Equal(c.OtherCPUs, tt.others) {
			t.Errorf("%v online: SUT %v, others %v, %v; want %v and %v", tt.online, c.SUTCPUs, c.OtherCPUs, err, tt.sut,
				tt.others)
		}
	}
}

func TestNames(t *testing.T) {
	l := raise(t, Config{})
	names, err := Names()
	if err != nil || !slices.Contains(names, l.Config.Name) {
		t.Errorf("got %v, %v; want %s among them", names, err, l.Config.Name)
	}
	if _, err := Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open a lab that is not up: %v", err)
	}
	if _, err := Open("../x"); err == nil {
		t.Error("open ../x: no error")
	}
	if err := Down(context.Background(), "none"); err != nil {
		t.Errorf("take a lab down that is not up: %v", err)
	}
	have, err := Open(l.Config.Name)
	must.Do(t, err)
	if diff := cmp.Diff(l, have); diff != "" {
		t.Errorf("what Up and Open return (-up +open):\n%s", diff)
	}
	_, err = Up(context.Background(), Config{Name: l.Config.Name})
	if !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), l.Config.Name) {
		t.Errorf("second start: got %v, want %v and the lab's name", err, unix.EEXIST)
	}
	if got := run(t, l, SUT, Options{}, "cat", "/sys/class/net/lane0/operstate"); got != "up\n" {
		t.Errorf("lane0 after the second start: %q", got)
	}
	if err := errors.Join(l.Down(context.Background()), l.Down(context.Background())); err != nil {
		t.Errorf("down twice: %v", err)
	}
}

// TestNotReady: Up waits until every link has a carrier and every port of a bridge forwards. If
// that takes too long, the error names what is not ready.
func TestNotReady(t *testing.T) {
	l := raise(t, Config{Card: CardNone})
	b := &builder{cfg: l.Config, nodes: map[string]*node{}}
	for _, host := range append(HostNames(), Switch) {
		n, err := openNode(l.Config, host)
		must.Do(t, err)
		defer n.close()
		b.nodes[host] = n
	}
	// On some hosts, every new namespace has a sit0. awaitLinks must ignore it.
	for _, host := range []string{SUT, Switch} {
		run(t, l, host, Options{}, strings.Fields("ip link add sit0 type ifb")...)
	}
	if err := b.awaitLinks(t.Context()); err != nil {
		t.Errorf("a lab that is up: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, broken := range []struct {
		host, command, mend, want string
	}{
		{Switch, "bridge link set dev p-client state 0", "bridge link set dev p-client state 3",
			"p-client, port of a bridge, is in state 0"},
		{Noise, "ip link set eth0 down", "ip link set eth0 up", "eth0 is down"},
	} {
		run(t, l, broken.host, Options{}, strings.Fields(broken.command)...)
		err := b.awaitLinks(ended)
		if err == nil || !strings.Contains(err.Error(), broken.want) {
			t.Errorf("%s: got %v, want %q", broken.command, err, broken.want)
		}
		run(t, l, broken.host, Options{}, strings.Fields(broken.mend)...)
		if err := b.awaitLinks(t.Context()); err != nil {
			t.Errorf("%s: %v", broken.mend, err)
		}
	}
}

func TestCommand(t *testing.T) {
	l := raise(t, Config{})
	if got := strings.Fields(run(t, l, SUT, Options{}, "ls", "/sys/class/net")); !slices.Contains(got, Port) ||
		slices.Contains(got, cardPort) {
		t.Errorf("devices in the SUT's /sys: %q", got)
	}
	// Field 19 of the file is the nice value.
	if got := strings.Fields(run(t, l, Noise, Options{Nice: 5}, "cat", "/proc/self/stat")); got[18] != "5" {
		t.Errorf("nice %s, want 5", got[18])
	}
	for host, cpus := range map[string][]int{SUT: l.Config.SUTCPUs, Client: l.Config.OtherCPUs} {
		if got := run(t, l, host, Options{}, "grep", "Cpus_allowed_list",
			"/proc/self/status"); !strings.HasSuffix(got, "\t"+device.FormatCPUList(cpus)+"\n") {
			t.Errorf("processors of %s: %q, want %v", host, got, cpus)
		}
	}
	// The command must lead a session: only a session of its own gives it an autogroup of its own.
	if got := strings.Fields(run(t, l, Client, Options{}, "cat", "/proc/self/stat")); got[0] != got[5] {
		t.Errorf("process %s is in session %s", got[0], got[5])
	}
	if l.Cgroup != "" {
		if got := run(t, l, SUT, Options{Cgroup: true}, "cat", "/proc/self/cgroup"); !strings.Contains(got,
			":"+l.Cgroup+"\n") {
			t.Errorf("control groups without %s:\n%s", l.Cgroup, got)
		}
	}
	if _, err := l.Command(context.Background(), SUT, Options{Nice: 20}, "true"); err == nil {
		t.Error("nice out of range: no error")
	}
	if _, err := l.Command(context.Background(), "nobody", Options{}, "true"); err == nil ||
		!strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("unknown host: %v", err)
	}
}

// TestCommandKeepsMounts: a command on a host still sees what is mounted below /sys. With "ip netns
// exec", it would not.
func TestCommandKeepsMounts(t *testing.T) {
	l := raise(t, Config{})
	if l.CgroupDir == "" {
		t.Skip("no hierarchy has the cpuset controller")
	}
	if got := run(t, l, SUT, Options{}, "ls", l.CgroupDir); !strings.Contains(got, "cgroup.procs") {
		t.Errorf("%s on the SUT: %q", l.CgroupDir, got)
	}
}

func TestStatus(t *testing.T) {
	l := raise(t, Config{})
	cmd, err := l.Command(context.Background(), Client, Options{}, "sleep", "1000")
	must.Do(t, err)
	must.Do(t, cmd.Start())
	var s Status
	eventually(t, func() string {
		if s, err = ReadStatus(l.Config.Name); err != nil {
			return err.Error()
		}
		if got := s.Hosts[1].Processes; len(got) != 1 || got[0] != (Process{cmd.Process.Pid, "sleep"}) {
			return "processes of the client: " + cmp.Diff([]Process{{cmd.Process.Pid, "sleep"}}, got)
		}
		return ""
	})
	if !s.Ready || len(s.Hosts) != 4 || !s.Hosts[3].Exists {
		t.Errorf("status: %+v", s)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	must.Do(t, l.Down(context.Background()))
	select {
	case err := <-done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("the client's process: %v, want it ended by a signal", err)
		}
	case <-time.After(time.Minute):
		t.Error("the client's process outlived the lab")
		_ = cmd.Process.Kill()
	}
	if _, err := os.Stat(runDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the end: %v", runDir, err)
	}
}

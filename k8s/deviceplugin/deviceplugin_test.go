// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/inventory"
)

// A kubelet accepts the registrations of plugins, as the real kubelet does.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	server *grpc.Server
	asked  chan *v1beta1.RegisterRequest
	mu     sync.Mutex
	refuse map[string]error // the answer to a registration, by resource
}

func (k *kubelet) Register(_ context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuse[r.ResourceName]; err != nil {
		return nil, err
	}
	k.asked <- r
	return &v1beta1.Empty{}, nil
}

// startKubelet does what kubelet does at its start: it removes all sockets in dir and makes its
// own. If removes is false, it removes only its own socket, so that the plugins' sockets stay.
func startKubelet(t *testing.T, dir string, removes bool) *kubelet {
	t.Helper()
	pattern := "*.sock"
	if !removes {
		pattern = kubeletSocket
	}
	old, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	return serveKubelet(t, l)
}

func serveKubelet(t *testing.T, l net.Listener) *kubelet {
	t.Helper()
	k := &kubelet{server: grpc.NewServer(), asked: make(chan *v1beta1.RegisterRequest, 16)}
	v1beta1.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(l) }()
	t.Cleanup(k.server.Stop)
	return k
}

// registered waits until a plugin registers. It returns the resource's name and a client of the
// plugin.
func (k *kubelet) registered(t *testing.T, dir string) (string, v1beta1.DevicePluginClient) {
	t.Helper()
	select {
	case r := <-k.asked:
		c, err := grpc.NewClient("unix://"+filepath.Join(dir, r.Endpoint),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return r.ResourceName, v1beta1.NewDevicePluginClient(c)
	case <-time.After(10 * time.Second):
		t.Fatal("nobody has registered")
		return "", nil
	}
}

// A fakeInventory is a Granter that returns the test's snapshot and records granted units.
type fakeInventory struct {
	inventory.Inventory
	mu      sync.Mutex
	snap    *inventory.Snapshot
	changed chan struct{}
	granted []string
	looks   int // number of calls of Now
}

func (i *fakeInventory) Now() *inventory.Snapshot {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looks++
	return i.snap
}

func (i *fakeInventory) Changed(version uint64) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.snap.Version != version {
		c := make(chan struct{})
		close(c)
		return c
	}
	return i.changed
}

func (i *fakeInventory) Granted(_ string, ids []string) error {
	if slices.Contains(ids, "redis-1") {
		return errors.New("redis-1 is not healthy")
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.granted = append(i.granted, ids...)
	return nil
}

func (i *fakeInventory) set(change func(*inventory.Snapshot)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	next := *i.snap
	next.Version++
	next.Classes = slices.Clone(next.Classes)
	for c := range next.Classes {
		next.Classes[c].Units = slices.Clone(next.Classes[c].Units)
	}
	change(&next)
	i.snap = &next
	close(i.changed)
	i.changed = make(chan struct{})
}

func redis() *fakeInventory {
	return &fakeInventory{changed: make(chan struct{}), snap: &inventory.Snapshot{
		Device: &inventory.Device{Name: "eth0", NUMA: 1},
		Classes: []inventory.Class{
			{Name: "redis", ResourceName: "niclane.dev/redis", NUMAHint: true,
				Units: []inventory.Unit{{ID: "redis-0"}, {ID: "redis-1", Unhealthy: "its qdisc is gone"}}},
			{Name: "claimed", Units: []inventory.Unit{{ID: "claimed-0"}}},
		},
	}}
}

func run(t *testing.T, dir string, i *fakeInventory) {
	t.Helper()
	runManager(t, &Manager{Dir: dir, Inventory: i})
}

func runManager(t *testing.T, m *Manager) {
	t.Helper()
	m.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func listed(t *testing.T, s grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse]) string {
	t.Helper()
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range r.Devices {
		out = append(out, d.ID+" "+d.Health)
		if d.Topology == nil {
			out[len(out)-1] += " anywhere"
		} else if d.Topology.Nodes[0].ID != 1 {
			t.Errorf("%s: NUMA node %v", d.ID, d.Topology)
		}
	}
	return strings.Join(out, ", ")
}

// TestRefused checks that kubelet's refusal of a resource is reported once, also while kubelet is
// away, and withdrawn when kubelet takes the resource, or when the class has gone.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	k, inv := startKubelet(t, dir, true), redis()
	k.refuse = map[string]error{"niclane.dev/redis": errors.New(`the ResourceName "niclane.dev/redis" is invalid`)}
	told := make(chan map[string]string, 16)
	runManager(t, &Manager{Dir: dir, Inventory: inv, Refused: func(r map[string]string) { told <- r }})
	is := func(want string) {
		t.Helper()
		select {
		case r := <-told:
			if got := r["niclane.dev/redis"]; got != want || want == "" && len(r) > 0 {
				t.Errorf("told %q, want %q", r, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not told: ", want)
		}
	}
	is(`the ResourceName "niclane.dev/redis" is invalid`)
	k.server.Stop()
	k = startKubelet(t, dir, true)
	k.registered(t, dir)
	is("")
	k.mu.Lock()
	k.refuse = map[string]error{"niclane.dev/web": errors.New("no more")}
	k.mu.Unlock()
	inv.set(func(s *inventory.Snapshot) {
		s.Classes = append(s.Classes, inventory.Class{Name: "web", ResourceName: "niclane.dev/web"})
	})
	if r := <-told; r["niclane.dev/web"] != "no more" || len(r) != 1 {
		t.Errorf("told %q", r)
	}
	inv.set(func(s *inventory.Snapshot) { s.Classes = s.Classes[:2] })
	is("")
	if len(told) > 0 {
		t.Errorf("told too much: %q", <-told)
	}
}

// TestFault14Health checks that kubelet gets a new list when a unit's health changes, and when
// units are added or removed.
func TestFault14Health(t *testing.T) {
	dir := t.TempDir()
	k, inv := startKubelet(t, dir, true), redis()
	run(t, dir, inv)
	name, plugin := k.registered(t, dir)
	if name != "niclane.dev/redis" {
		t.Errorf("registered %s", name)
	}
	s, err := plugin.ListAndWatch(t.Context(), &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s); got != "redis-0 Healthy, redis-1 Unhealthy" {
		t.Errorf("got %s", got)
	}
	inv.set(func(s *inventory.Snapshot) {
		s.Classes[0].Units[0].Unhealthy, s.Classes[0].Units[1].Unhealthy = "eth0 is down", ""
	})
	if got := listed(t, s); got != "redis-0 Unhealthy, redis-1 Healthy" {
		t.Errorf("got %s", got)
	}
	inv.set(func(s *inventory.Snapshot) { s.Classes[0].NUMAHint = false })
	if got := listed(t, s); got != "redis-0 Unhealthy anywhere, redis-1 Healthy anywhere" {
		t.Errorf("without a NUMA hint: got %s", got)
	}
	if _, err := plugin.Allocate(t.Context(),
		&v1beta1.AllocateRequest{
			ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"redis-1"}}}}); err == nil ||
		!strings.Contains(err.Error(), "not healthy") {
		t.Errorf("allocate: %v", err)
	}
	r, err := plugin.Allocate(t.Context(),
		&v1beta1.AllocateRequest{
			ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"redis-0"}}}})
	if err != nil || r.ContainerResponses[0].Envs["NICLANE_UNITS"] != "redis-0" || len(inv.granted) != 1 {
		t.Errorf("allocate: %v, %v", r, err)
	}
	inv.set(func(s *inventory.Snapshot) {
		s.Classes = append(s.Classes,
			inventory.Class{Name: "adq", ResourceName: "net.intel.com/adq", Units: []inventory.Unit{{ID: "adq-0"}}})
	})
	if name, _ := k.registered(t, dir); name != "net.intel.com/adq" {
		t.Errorf("registered %s", name)
	}
}

// TestKubeletRestarts checks that the plugin registers again after each restart of kubelet.
func TestKubeletRestarts(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir, true)
	run(t, dir, redis())
	k.registered(t, dir)
	for i := range 4 {
		k.server.Stop()
		k = startKubelet(t, dir, i%2 == 0)
		for again := true; again; { // a plugin may register before its socket is removed, and then once more
			_, plugin := k.registered(t, dir)
			s, err := plugin.ListAndWatch(t.Context(), &v1beta1.Empty{})
			if err != nil {
				continue
			}
			r, err := s.Recv()
			again = err != nil
			if err == nil && len(r.Devices) != 2 {
				t.Errorf("got %v", r.Devices)
			}
		}
	}
}

// TestKubeletBindsFirst tests a kubelet whose socket exists before kubelet accepts connections. The
// plugin must register soon after, even if the socket has appeared and disappeared several times.
func TestKubeletBindsFirst(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, kubeletSocket)
	inv := redis()
	run(t, dir, inv)
	looked := func(n int) {
		vethtest.Until(t, fmt.Sprintf("the plugin has looked %d times", n), func() bool {
			inv.mu.Lock()
			defer inv.mu.Unlock()
			return inv.looks >= n
		})
	}
	looked(2) // once at the start, and once for the plugin's own socket
	for range 8 {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "kubelet")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	looked(2 + 2*8 + 1 + 1) // 2 as before, 16 and 1 for kubelet's socket, 1 for a retry
	if err := unix.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	serveKubelet(t, l).registered(t, dir)
}

func TestPrefer(t *testing.T) {
	for _, c := range []struct{ available, must, want string }{
		{"r-0 r-1 r-2 r-3", "", "r-0 r-1"},
		{"r-5 r-0 r-3 r-2", "", "r-2 r-3"},
		{"r-0 r-1 r-2 r-4 r-5", "", "r-4 r-5"}, // r-4 and r-5 are the smaller run of free units
		{"r-0 r-1 r-2", "r-2", "r-1 r-2"},
		{"r-0 r-2 r-4", "", "r-0 r-2"},
	} {
		got := prefer("r", strings.Fields(c.available), strings.Fields(c.must), 2)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

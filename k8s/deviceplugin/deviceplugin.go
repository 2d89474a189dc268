// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin offers the classes of a node to kubelet as extended resources
// (niclane.dev/CLASS). Each unit is a device, with the card's NUMA node and the unit's health. The
// package registers the resources again when kubelet restarts or when a socket is removed. It
// offers new classes when they appear.
package deviceplugin

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/policy"
)

// DefaultDir is the directory in which kubelet looks for plugins.
const DefaultDir = v1beta1.DevicePluginPath

// kubeletSocket is the name of kubelet's socket in the directory of the plugins' sockets.
const kubeletSocket = "kubelet.sock"

// A Granter is an Inventory that also records which units kubelet gives to containers.
// *lanes.Manager implements it.
type Granter interface {
	inventory.Inventory
	Granted(class string, ids []string) error
}

// A Manager offers all classes that are offered as resources, by one plugin each.
type Manager struct {
	Dir       string // the directory of the sockets
	Inventory Granter
	// Refused is called when kubelet has refused resources, or accepts them again, with kubelet's
	// reasons by resource. It must not block.
	Refused func(reasons map[string]string)
	Log     *slog.Logger

	plugins map[string]*plugin // by resource
	refused map[string]string  // what Refused was called with last
}

// firstRetry is the time from the first failure to the next attempt. It doubles with each further
// failure, up to 30 s.
const firstRetry = 100 * time.Millisecond

// Run offers the classes until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	m.plugins = map[string]*plugin{}
	defer func() {
		for _, p := range m.plugins {
			p.stop()
		}
	}()
	restarts, err := watchDir(ctx, m.Dir)
	if err != nil {
		return fmt.Errorf("device plugins: %w", err)
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	wait := firstRetry
	for {
		snap := m.Inventory.Now()
		failed := m.follow(ctx, snap)
		if failed {
			retry.Reset(wait)
			wait = min(2*wait, 30*time.Second)
		} else {
			retry.Stop()
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case name, ok := <-restarts:
			if ctx.Err() != nil {
				return nil
			}
			if !ok {
				return errors.New("device plugins: kubelet's directory cannot be watched any more")
			}
			m.gone(name)
			// A starting kubelet causes several events. The last one comes before it accepts connections
			// (bind, then listen). So the next attempts must follow soon.
			wait = firstRetry
		case <-m.Inventory.Changed(snap.Version):
		case <-retry.C:
		}
	}
}

// gone reacts to a change of the socket with this name. After a change of kubelet's socket, all
// plugins must register again. A plugin whose own socket was removed is stopped.
func (m *Manager) gone(name string) {
	for _, p := range m.plugins {
		if name == kubeletSocket {
			// kubelet removes all sockets when it starts.
			p.registered = false
		}
		if name == kubeletSocket || name == p.socket() {
			if _, err := os.Lstat(filepath.Join(m.Dir, p.socket())); err != nil {
				p.stop()
			}
		}
	}
}

// follow starts and registers a plugin for each resource of the snapshot. It stops plugins whose
// resource no longer exists. failed says that at least one plugin could not register.
func (m *Manager) follow(ctx context.Context, snap *inventory.Snapshot) (failed bool) {
	want := map[string]bool{}
	for i := range snap.Classes {
		c := &snap.Classes[i]
		if c.ResourceName == "" {
			continue
		}
		want[c.ResourceName] = true
		p := m.plugins[c.ResourceName]
		if p == nil {
			p = &plugin{m: m, class: c.Name, resource: c.ResourceName}
			m.plugins[c.ResourceName] = p
		}
		p.set(snap, c)
		if err := p.serve(ctx); err != nil {
			failed = true
			if p.problem != err.Error() {
				p.problem = err.Error()
				m.Log.Warn("resource is not offered yet", "resource", p.resource, "error", err)
			}
			continue
		}
		p.problem = ""
	}
	for name, p := range m.plugins {
		if !want[name] {
			// kubelet keeps the devices of a plugin that ends, so the plugin first sends an empty list.
			p.empty()
			p.stop()
			delete(m.plugins, name)
		}
	}
	m.tellRefused()
	return failed
}

// tellRefused calls Refused if kubelet's reasons have changed.
func (m *Manager) tellRefused() {
	now := map[string]string{}
	for name, p := range m.plugins {
		if p.refused != "" {
			now[name] = p.refused
		}
	}
	if m.Refused != nil && !maps.Equal(now, m.refused) {
		m.Refused(maps.Clone(now))
	}
	m.refused = now
}

// answer returns kubelet's words if it has refused a registration. answered is false if kubelet has
// not answered: it may be starting.
func answer(err error) (refusal string, answered bool) {
	switch s := status.Convert(err); s.Code() {
	case codes.OK:
		return "", true
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return "", false
	default:
		return s.Message(), true
	}
}

// A plugin offers one extended resource to kubelet.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	m               *Manager
	class, resource string

	server     *grpc.Server
	registered bool
	problem    string
	refused    string // kubelet's words when it refused the resource last

	mu      sync.Mutex
	devices []*v1beta1.Device
	changed chan struct{}
}

// socket returns the name of the plugin's socket.
func (p *plugin) socket() string {
	return "niclane-" + strings.ReplaceAll(p.resource, "/", "_") + ".sock"
}

// set updates the list of devices from the class's units.
func (p *plugin) set(snap *inventory.Snapshot, c *inventory.Class) {
	var out []*v1beta1.Device
	for _, u := range c.Units {
		d := &v1beta1.Device{ID: u.ID, Health: v1beta1.Healthy}
		if u.Unhealthy != "" {
			d.Health = v1beta1.Unhealthy
		}
		if c.NUMAHint && snap.Device != nil && snap.Device.NUMA >= 0 {
			d.Topology = &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(snap.Device.NUMA)}}}
		}
		out = append(out, d)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.class = c.Name
	if p.changed == nil || !slices.EqualFunc(out, p.devices, same) {
		p.tell(out)
	}
}

func same(a, b *v1beta1.Device) bool {
	node := func(d *v1beta1.Device) int64 {
		if d.Topology == nil {
			return -1
		}
		return d.Topology.Nodes[0].ID
	}
	return a.ID == b.ID && a.Health == b.Health && node(a) == node(b)
}

// tell makes ListAndWatch send a new list of devices to kubelet. The caller holds p.mu.
func (p *plugin) tell(devices []*v1beta1.Device) {
	if p.changed != nil {
		close(p.changed)
	}
	p.devices, p.changed = devices, make(chan struct{})
}

func (p *plugin) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(nil)
}

// serve makes the plugin listen on its socket, and registers it with kubelet. It skips what is
// already done.
func (p *plugin) serve(ctx context.Context) error {
	path := filepath.Join(p.m.Dir, p.socket())
	if _, err := os.Lstat(path); err != nil && p.server != nil {
		p.stop() // kubelet has removed the socket at its start; the event may come later
	}
	if p.server == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		s := grpc.NewServer()
		v1beta1.RegisterDevicePluginServer(s, p)
		p.server, p.registered = s, false
		go func() { _ = s.Serve(l) }() // until stop
	}
	if p.registered {
		return nil
	}
	c, err := grpc.NewClient("unix://"+filepath.Join(p.m.Dir, kubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(c).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: p.socket(), ResourceName: p.resource,
		Options: &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true},
	})
	if why, answered := answer(err); answered {
		p.refused = why
	}
	if err != nil {
		return fmt.Errorf("register with kubelet: %w", err)
	}
	p.registered = true
	p.m.Log.Info("resource is offered", "resource", p.resource)
	return nil
}

func (p *plugin) stop() {
	if p.server != nil {
		p.server.Stop()
		p.server, p.registered = nil, false
	}
}

// GetDevicePluginOptions implements v1beta1.DevicePluginServer.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch implements v1beta1.DevicePluginServer. It sends the list of devices, and again after
// each change.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation implements v1beta1.DevicePluginServer. It prefers consecutive units,
// because several units of one container can become one lane only if they are consecutive. It takes
// them from the smallest sufficient run of free units.
func (p *plugin) GetPreferredAllocation(_ context.Context,
	r *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	p.mu.Lock()
	class := p.class
	p.mu.Unlock()
	out := &v1beta1.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{
			DeviceIDs: prefer(class, c.AvailableDeviceIDs, c.MustIncludeDeviceIDs, int(c.AllocationSize)),
		})
	}
	return out, nil
}

// prefer chooses as many of the available IDs as size says. All IDs of must are among them.
func prefer(class string, available, must []string, size int) []string {
	numbers := func(ids []string) []int {
		out := make([]int, 0, len(ids))
		for _, id := range ids {
			if n := policy.UnitNumber(class, id); n >= 0 {
				out = append(out, n)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	free, needed := numbers(append(slices.Clone(available), must...)), numbers(must)
	var best []int
	gap := 0
	for i := 0; i < len(free); {
		end := i + 1
		for end < len(free) && free[end] == free[end-1]+1 {
			end++
		}
		run := free[i:end]
		for at := 0; at+size <= len(run); at++ {
			w := run[at : at+size]
			has := !slices.ContainsFunc(needed, func(n int) bool { return !slices.Contains(w, n) })
			if has && (best == nil || len(run) < gap) {
				best, gap = w, len(run)
				break
			}
		}
		i = end
	}
	if best == nil { // not enough consecutive units: must, and then the lowest numbers
		best = needed
		for _, n := range free {
			if len(best) < size && !slices.Contains(best, n) {
				best = append(best, n)
			}
		}
	}
	var out []string
	for _, n := range best[:min(size, len(best))] {
		out = append(out, policy.UnitID(class, n))
	}
	return out
}

// Allocate implements v1beta1.DevicePluginServer. It sets NICLANE_CLASS, NICLANE_UNITS and
// NICLANE_DEVICE in the container's environment.
func (p *plugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	p.mu.Lock()
	class := p.class
	p.mu.Unlock()
	out := &v1beta1.AllocateResponse{}
	snap := p.m.Inventory.Now()
	for _, c := range r.ContainerRequests {
		if err := p.m.Inventory.Granted(class, c.DevicesIds); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		answer := &v1beta1.ContainerAllocateResponse{}
		if cl := snap.Find(class); cl != nil && snap.Device != nil {
			ids := slices.SortedFunc(slices.Values(c.DevicesIds), func(a, b string) int {
				return cmp.Compare(policy.UnitNumber(class, a), policy.UnitNumber(class, b))
			})
			answer.Envs = map[string]string{
				"NICLANE_CLASS": class, "NICLANE_UNITS": strings.Join(ids, ","), "NICLANE_DEVICE": snap.Device.Name,
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, answer)
	}
	return out, nil
}

// watchDir returns a channel with the names of files that are created in a directory or removed
// from it. The channel is closed when ctx ends or the directory cannot be watched any more.
func watchDir(ctx context.Context, dir string) (<-chan string, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir,
		unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(fd), "inotify") // fd is non-blocking, so Close ends a Read that waits
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan string, 16)
	go func() {
		defer stop()
		defer close(out)
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			for at := 0; at+unix.SizeofInotifyEvent <= n; {
				length := int(binary.NativeEndian.Uint32(buf[at+12:]))
				name := unix.ByteSliceToString(buf[at+unix.SizeofInotifyEvent : at+unix.SizeofInotifyEvent+length])
				at += unix.SizeofInotifyEvent + length
				select {
				case out <- name:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

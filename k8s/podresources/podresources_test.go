// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A kubelet answers by the real gRPC server with kubelet's own types.
type kubelet struct {
	v1.UnimplementedPodResourcesListerServer
	pods  []*v1.PodResources
	noGet bool
	// busy is how many calls are refused before one is answered.
	busy atomic.Int32
}

func (k *kubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	if k.pods == nil {
		return nil, status.Error(codes.Internal, "no checkpoint")
	}
	return &v1.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func (k *kubelet) Get(_ context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	if k.busy.Add(-1) >= 0 {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	for _, p := range k.pods {
		if p.Name == r.PodName && p.Namespace == r.PodNamespace && !k.noGet {
			return &v1.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, errors.New("pod not found, or the method is disabled")
}

func serve(t *testing.T, k *kubelet) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, k)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return New(path)
}

func TestGet(t *testing.T) {
	share := "s"
	given := []*v1.PodResources{
		{Name: "other", Namespace: "default"},
		{Name: "redis", Namespace: "default", Containers: []*v1.ContainerResources{{
			Name: "c", CpuIds: []int64{1, 2},
			Devices: []*v1.ContainerDevices{
				{ResourceName: "niclane.dev/redis", DeviceIds: []string{"redis-0"}, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}}},
				{ResourceName: "niclane.dev/redis", DeviceIds: []string{"redis-1"}},
			},
			DynamicResources: []*v1.DynamicResource{{ClaimName: "cl", ClaimNamespace: "default", ClaimResources: []*v1.ClaimResource{{DriverName: "niclane.dev", PoolName: "n1", DeviceName: "web", ShareId: &share}}}},
		}}},
	}
	want := &Pod{Namespace: "default", Name: "redis", Containers: []Container{{
		Name: "c", Devices: []Devices{{"niclane.dev/redis", []string{"redis-0", "redis-1"}}}, Claims: []Claim{{"default", "cl", []string{"niclane.dev"}}},
	}}}
	for _, noGet := range []bool{false, true} {
		c := serve(t, &kubelet{pods: given, noGet: noGet})
		for range 2 { // over one connection
			got, err := c.Get(t.Context(), "default", "redis")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without Get: %v (-want +got)\n%s", noGet, diff)
			}
		}
		if got, err := c.Get(t.Context(), "default", "absent"); got != nil || err != nil {
			t.Errorf("got %v, %v, want nothing", got, err)
		}
	}
}

// TestRateLimit asks again where kubelet refuses because others ask too: it has not
// said that the pod has nothing.
func TestRateLimit(t *testing.T) {
	k := &kubelet{pods: []*v1.PodResources{{Name: "redis", Namespace: "default"}}}
	c := serve(t, k)
	k.busy.Store(3)
	if got, err := c.Get(t.Context(), "default", "redis"); got == nil || err != nil {
		t.Errorf("got %v, %v, want the pod", got, err)
	}
	k.busy.Store(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := c.Get(ctx, "default", "redis"); got != nil || err == nil {
		t.Errorf("got %v, %v, want an error", got, err)
	}
}

func TestErrors(t *testing.T) {
	if _, err := serve(t, &kubelet{}).List(t.Context()); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("got %v", err)
	}
	if _, err := New(filepath.Join(t.TempDir(), "absent")).List(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x0a, 0x05, 0x0a, 0x03, 'a', 'b', 'c'})
	f.Add([]byte{0x08, 0x01, 0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		pods, err := decodePods(b)
		if err == nil && len(pods) > len(b) {
			t.Errorf("%d pods of %d bytes", len(pods), len(b))
		}
	})
}

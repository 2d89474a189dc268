// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/niclane/niclane/k8s/pods/podresources/kubelettest"
)

func serve(t *testing.T, k *kubelettest.Kubelet) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.sock")
	k.Serve(t, path)
	return New(path)
}

func TestGet(t *testing.T) {
	share := "s"
	given := []*v1.PodResources{
		{Name: "other", Namespace: "default"},
		{Name: "redis", Namespace: "default", Containers: []*v1.ContainerResources{{
			Name: "c", CpuIds: []int64{1, 2},
			Devices: []*v1.ContainerDevices{
				{ResourceName: "niclane.dev/redis", DeviceIds: []string{"redis-0"},
					Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}}},
				{ResourceName: "niclane.dev/redis", DeviceIds: []string{"redis-1"}},
			},
			DynamicResources: []*v1.DynamicResource{{ClaimName: "cl", ClaimNamespace: "default",
				ClaimResources: []*v1.ClaimResource{{DriverName: "niclane.dev", PoolName: "n1", DeviceName: "web",
					ShareId: &share}}}},
		}}},
	}
	want := &Pod{Namespace: "default", Name: "redis", Containers: []Container{{
		Name: "c", Devices: []Devices{{"niclane.dev/redis", []string{"redis-0", "redis-1"}}},
		Claims: []Claim{{"default", "cl", []string{"niclane.dev"}}},
	}}}
	for _, noGet := range []bool{false, true} {
		c := serve(t, &kubelettest.Kubelet{Pods: given, NoGet: noGet})
		for range 2 {
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

// TestRateLimit checks that the client repeats a call that kubelet refuses by its rate limit. The
// client must not conclude that the pod has no devices.
func TestRateLimit(t *testing.T) {
	k := &kubelettest.Kubelet{Pods: []*v1.PodResources{{Name: "redis", Namespace: "default"}}}
	c := serve(t, k)
	k.Busy.Store(3)
	if got, err := c.Get(t.Context(), "default", "redis"); got == nil || err != nil {
		t.Errorf("got %v, %v, want the pod", got, err)
	}
	k.Busy.Store(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := c.Get(ctx, "default", "redis"); got != nil || err == nil {
		t.Errorf("got %v, %v, want an error", got, err)
	}
}

func TestErrors(t *testing.T) {
	if _, err := serve(t, &kubelettest.Kubelet{}).List(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("got %v", err)
	}
	if _, err := New(filepath.Join(t.TempDir(), "absent")).List(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

// TestLarge checks that an answer of 2000 pods arrives complete. It takes many HTTP/2 frames and is
// larger than the default flow control window.
func TestLarge(t *testing.T) {
	given := make([]*v1.PodResources, 2000)
	for i := range given {
		given[i] = &v1.PodResources{Name: fmt.Sprint("pod-", i), Namespace: strings.Repeat("n", 63),
			Containers: []*v1.ContainerResources{{Name: strings.Repeat("c", 63)}}}
	}
	c := serve(t, &kubelettest.Kubelet{Pods: given})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := c.List(ctx)
	if err != nil || len(got) != len(given) || got[1999].Name != "pod-1999" {
		t.Errorf("%d pods, %v", len(got), err)
	}
}

// TestSilent checks that the client waits for a silent server until its context ends.
func TestSilent(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "k.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err == nil {
			// The client sends this preface first (RFC 9113, section 3.4), and then waits for an answer.
			_, _ = io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		}
		cancel()
	}()
	if _, err := New(l.Addr().String()).List(ctx); status.Code(errors.Unwrap(err)) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

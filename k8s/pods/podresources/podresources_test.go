// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"bytes"
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
	"golang.org/x/net/http2/hpack"
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

// TestRateLimit asks again where kubelet refuses because others ask too: it has not
// said that the pod has nothing.
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
	if _, err := serve(t, &kubelettest.Kubelet{}).List(t.Context()); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("got %v", err)
	}
	if _, err := New(filepath.Join(t.TempDir(), "absent")).List(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

// TestLarge: an answer of many frames and more than the default windows, with
// trailers after it.
func TestLarge(t *testing.T) {
	given := make([]*v1.PodResources, 2000)
	for i := range given {
		given[i] = &v1.PodResources{Name: fmt.Sprint("pod-", i), Namespace: strings.Repeat("n", 63), Containers: []*v1.ContainerResources{{Name: strings.Repeat("c", 63)}}}
	}
	c := serve(t, &kubelettest.Kubelet{Pods: given})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := c.List(ctx)
	if err != nil || len(got) != len(given) || got[1999].Name != "pod-1999" {
		t.Errorf("%d pods, %v", len(got), err)
	}
}

// TestSilent: who takes the connection and says nothing is waited for as long as
// the context lasts.
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
			_, _ = io.ReadFull(c, make([]byte, 100)) // the call has been made
		}
		cancel()
	}()
	if _, err := New(l.Addr().String()).List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A script is a server that says what it says.
type script struct{ io.Reader }

func (script) Write(b []byte) (int, error) { return len(b), nil }

func FuzzReceive(f *testing.F) {
	var fields bytes.Buffer
	e := hpack.NewEncoder(&fields)
	for _, h := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "grpc-status", Value: "13"}, {Name: "grpc-message", Value: "busy"}} {
		if err := e.WriteField(h); err != nil {
			f.Fatal(err)
		}
	}
	whole := appendFrame(appendFrame(nil, frameSettings, 0, 0, nil), framePing, 0, 0, make([]byte, 8))
	whole = appendFrame(whole, frameHeaders, flagPadded|flagPriority|flagEndStream, stream, append([]byte{2, 0, 0, 0, 0, 0}, append(fields.Bytes()[:3:3], 0, 0)...))
	whole = appendFrame(whole, frameContinuation, flagEndHeaders, stream, fields.Bytes()[3:])
	a, err := receive(script{bytes.NewReader(whole)})
	if err != nil || a.http != "200" || a.status != "13" || a.message != "busy" {
		f.Fatalf("%+v, %v", a, err)
	}
	f.Add(whole)
	f.Add(appendFrame(nil, frameData, flagPadded|flagEndStream, stream, []byte{200}))
	f.Add(appendFrame(nil, frameGoAway, 0, 0, make([]byte, 8)))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := receive(script{bytes.NewReader(b)})
		if err == nil && len(a.body) > len(b) {
			t.Errorf("%d bytes of %d", len(a.body), len(b))
		}
	})
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

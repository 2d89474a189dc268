// SPDX-License-Identifier: Apache-2.0

// Package kubelettest is a substitute for kubelet's pod resources API in tests: a real gRPC
// server with kubelet's own types, on a Unix socket.
package kubelettest

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A Kubelet answers with its Pods. If Pods is nil, List returns an error, as kubelet does after the
// loss of its checkpoint.
type Kubelet struct {
	v1.UnimplementedPodResourcesListerServer
	Pods []*v1.PodResources
	// NoGet makes Get fail, like a kubelet that does not serve it (possible before Kubernetes 1.34).
	NoGet bool
	// Busy is how many more calls of Get fail with the error of kubelet's rate limit.
	Busy atomic.Int32
}

// Pod returns a pod of namespace default, whose container c has units of an extended
// resource.
func Pod(name, resource string, units ...string) *v1.PodResources {
	return &v1.PodResources{Namespace: "default", Name: name, Containers: []*v1.ContainerResources{{
		Name: "c", Devices: []*v1.ContainerDevices{{ResourceName: resource, DeviceIds: units}},
	}}}
}

// Plain returns a pod of namespace default whose container c has no devices.
func Plain(name string) *v1.PodResources {
	return &v1.PodResources{Namespace: "default", Name: name, Containers: []*v1.ContainerResources{{Name: "c"}}}
}

// Serve answers on a socket until the test ends.
func (k *Kubelet) Serve(t testing.TB, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, k)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// List implements v1.PodResourcesListerServer.
func (k *Kubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	if k.Pods == nil {
		return nil, status.Error(codes.Internal, "no checkpoint")
	}
	return &v1.ListPodResourcesResponse{PodResources: k.Pods}, nil
}

// Get implements v1.PodResourcesListerServer. The errors are those of kubelet's
// pkg/kubelet/apis/podresources and pkg/kubelet/apis/grpc.
func (k *Kubelet) Get(_ context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	if k.Busy.Add(-1) >= 0 {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	if k.NoGet {
		return nil, status.Error(codes.Unknown, "PodResources API Get method disabled")
	}
	i := slices.IndexFunc(k.Pods, func(p *v1.PodResources) bool {
		return p.Name == r.PodName && p.Namespace == r.PodNamespace
	})
	if i < 0 {
		return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", r.PodName, r.PodNamespace)
	}
	return &v1.GetPodResourcesResponse{PodResources: k.Pods[i]}, nil
}

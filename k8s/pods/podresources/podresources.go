// SPDX-License-Identifier: Apache-2.0

// Package podresources asks kubelet, on its Unix socket, which devices and claims the
// containers of its pods have. It needs no token, no certificate and no right in the cluster.
package podresources

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// DefaultSocket is kubelet's socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// maxAnswer is the largest answer in bytes. kubelet's own client also accepts 16 MiB.
const maxAnswer = 16 << 20

// A Pod has the devices and claims that kubelet has given to a pod.
type Pod struct {
	Namespace, Name string
	Containers      []Container
}

// A Container has the devices and claims of one container.
type Container struct {
	Name    string
	Devices []Devices
	Claims  []Claim
}

// Devices are the devices of one extended resource.
type Devices struct {
	Resource string
	IDs      []string
}

// A Claim is a ResourceClaim that a container uses.
type Claim struct {
	Namespace, Name string
	// Drivers are the names of the DRA drivers of the claim's devices.
	Drivers []string
}

// A Client asks one kubelet. It makes a new connection for each request, because kubelet may have
// restarted since the last one.
type Client struct{ socket string }

// New returns a client of the kubelet at a socket. It does not connect yet.
func New(socket string) *Client { return &Client{socket} }

// Get returns the devices and claims of a pod, nil if kubelet does not know the pod. If kubelet
// does not serve Get (possible before Kubernetes 1.34), the pod comes from List.
func (c *Client) Get(ctx context.Context, namespace, name string) (*Pod, error) {
	got, err := ask(ctx, c, v1.PodResourcesListerClient.Get,
		&v1.GetPodResourcesRequest{PodName: name, PodNamespace: namespace})
	if err == nil {
		if got.GetPodResources() == nil {
			return nil, nil
		}
		p := podOf(got.PodResources)
		return &p, nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.ResourceExhausted || ctx.Err() != nil {
		return nil, err
	}
	all, lerr := c.List(ctx)
	for i := range all {
		if all[i].Namespace == namespace && all[i].Name == name {
			return &all[i], nil
		}
	}
	if lerr != nil {
		return nil, err
	}
	return nil, nil
}

// List returns the devices and claims of all pods.
func (c *Client) List(ctx context.Context) ([]Pod, error) {
	got, err := ask(ctx, c, v1.PodResourcesListerClient.List, &v1.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	var out []Pod
	for _, p := range got.PodResources {
		out = append(out, podOf(p))
	}
	return out, nil
}

// againIn is the wait before a refused call is repeated. kubelet answers only 100 calls a second,
// of all callers together (pkg/kubelet/apis/grpc/ratelimit.go).
const againIn = 10 * time.Millisecond

// ask makes a call to kubelet, and repeats it as long as kubelet refuses it by its rate limit.
func ask[In, Out any](ctx context.Context, c *Client,
	call func(v1.PodResourcesListerClient, context.Context, *In, ...grpc.CallOption) (*Out, error), in *In,
) (*Out, error) {
	conn, err := grpc.NewClient("unix:"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	defer conn.Close()
	for {
		out, err := call(v1.NewPodResourcesListerClient(conn), ctx, in)
		if err == nil {
			return out, nil
		}
		if status.Code(err) != codes.ResourceExhausted {
			return nil, fmt.Errorf("kubelet: %w", err)
		}
		// The random part spreads the repeats of calls that were refused at the same time.
		timer := time.NewTimer(againIn + rand.N(againIn))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("kubelet: %w", err)
		}
	}
}

func podOf(p *v1.PodResources) Pod {
	out := Pod{Namespace: p.Namespace, Name: p.Name}
	for _, c := range p.Containers {
		container := Container{Name: c.Name}
		// kubelet has an entry for each resource and NUMA node. Join the entries of a resource.
		at := map[string]int{}
		for _, d := range c.Devices {
			i, there := at[d.ResourceName]
			if !there {
				i = len(container.Devices)
				at[d.ResourceName] = i
				container.Devices = append(container.Devices, Devices{Resource: d.ResourceName})
			}
			container.Devices[i].IDs = append(container.Devices[i].IDs, d.DeviceIds...)
		}
		for _, r := range c.DynamicResources {
			claim := Claim{Namespace: r.ClaimNamespace, Name: r.ClaimName}
			for _, x := range r.ClaimResources {
				claim.Drivers = append(claim.Drivers, x.DriverName)
			}
			container.Claims = append(container.Claims, claim)
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/niclane/niclane/k8s/inventory"
)

var (
	nodesGVR  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	claimsGVR = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	slicesGVR = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
)

// Options of a driver.
type Options struct {
	// Node is the name of the node, which is also that of its pool of devices.
	Node string
	// Client may read Nodes and ResourceClaims, write ResourceSlices, and the
	// status of ResourceClaims.
	Client    dynamic.Interface
	Inventory classes.Inventory
	// KubeletDir is kubelet's directory, /var/lib/kubelet on most nodes.
	KubeletDir string
	Log        *slog.Logger
}

// Run offers the node's lanes until ctx ends. What it has published stays: the
// lanes do too, and pods in them.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &driver{Options: o, healthServer: healthServer{inventory: o.Inventory}, status: newStatus(o)}
	end, err := d.serve(cancel)
	if err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	defer end()
	var parts sync.WaitGroup
	parts.Go(func() { d.status.run(ctx) })
	parts.Go(func() { newPublisher(o).run(ctx) })
	parts.Go(func() { d.follow(ctx) })
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("dra: %w", cause)
	}
	return nil
}

// A driver answers kubelet.
type driver struct {
	draapi.UnimplementedDRAPluginServer
	Options
	healthServer
	status *status
	mu     sync.Mutex // of what changes holds: one call at a time
}

// follow has the claims' statuses follow the inventory.
func (d *driver) follow(ctx context.Context) {
	for {
		version := d.Inventory.Now().Version
		d.status.look()
		select {
		case <-ctx.Done():
			return
		case <-d.Inventory.Changed(version):
		}
	}
}

// NodePrepareResources implements draapi.DRAPluginServer: it holds what is allocated.
// The pod's packets are steered when it has its address.
func (d *driver) NodePrepareResources(ctx context.Context, r *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	out := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for _, asked := range r.Claims {
		devices, err := d.prepare(ctx, asked)
		answer := &draapi.NodePrepareResourceResponse{Devices: devices}
		if err != nil {
			d.Log.ErrorContext(ctx, "claim refused", "claim", asked.Namespace+"/"+asked.Name, "error", err)
			answer.Error = fmt.Sprintf("claim %s/%s: %v", asked.Namespace, asked.Name, err)
		}
		out.Claims[asked.Uid] = answer
	}
	d.status.look()
	return out, nil
}

func (d *driver) prepare(ctx context.Context, asked *draapi.Claim) ([]*draapi.Device, error) {
	c, err := d.claim(ctx, asked)
	if err != nil {
		return nil, err
	}
	h, err := holdOf(d.Inventory.Now(), c)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Inventory.Hold(ctx, h); err != nil {
		return nil, err
	}
	var out []*draapi.Device
	for _, held := range h.Units {
		request, _, _ := strings.Cut(held.Request, "/") // kubelet knows no subrequests
		of := &draapi.Device{RequestNames: []string{request}, PoolName: d.Node, DeviceName: device(held)}
		if held.Share != "" {
			of.ShareId = &held.Share
		}
		out = append(out, of)
	}
	return out, nil
}

// claim is the claim that kubelet asks for, and not another one of its name.
func (d *driver) claim(ctx context.Context, asked *draapi.Claim) (*resourceapi.ResourceClaim, error) {
	u, err := d.Client.Resource(claimsGVR).Namespace(asked.Namespace).Get(ctx, asked.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c := &resourceapi.ResourceClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return nil, err
	}
	switch {
	case string(c.UID) != asked.Uid:
		return nil, fmt.Errorf("it has the UID %s now, not %s", c.UID, asked.Uid)
	case c.Status.Allocation == nil:
		return nil, errors.New("nothing is allocated for it")
	}
	return c, nil
}

// NodeUnprepareResources implements draapi.DRAPluginServer.
func (d *driver) NodeUnprepareResources(ctx context.Context, r *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for _, asked := range r.Claims {
		answer := &draapi.NodeUnprepareResourceResponse{}
		if err := d.Inventory.Release(ctx, asked.Uid); err != nil {
			d.Log.ErrorContext(ctx, "claim not released", "claim", asked.Namespace+"/"+asked.Name, "error", err)
			answer.Error = err.Error()
		}
		out.Claims[asked.Uid] = answer
	}
	d.status.look()
	return out, nil
}

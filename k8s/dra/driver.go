// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// Options of a driver.
type Options struct {
	// Node is the name of the node and of its pool of devices.
	Node string
	// Client needs the right to read Nodes and ResourceClaims, and to write ResourceSlices
	// and the status of ResourceClaims.
	Client    kubernetes.Interface
	Inventory inventory.Inventory
	// KubeletDir is kubelet's directory, usually /var/lib/kubelet.
	KubeletDir string
	// Refused is called with kubelet's answers to the driver's registration: kubelet's words if it
	// refuses the driver, "" if it takes it. It may be nil, and must not block.
	Refused func(reason string)
	Log     *slog.Logger
}

// Run offers the node's lanes until ctx ends. It does not remove the published slices at the end,
// because the lanes and their pods stay too.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	data := filepath.Join(o.KubeletDir, "plugins", DriverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	d := &driver{Options: o, healthServer: healthServer{inventory: o.Inventory}, status: newStatus(o), fail: cancel}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(o.Log.Handler()))
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(DriverName), kubeletplugin.NodeName(o.Node), kubeletplugin.KubeClient(o.Client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.KubeletDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.GRPCInterceptor(d.hear))
	if err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	defer func() {
		if helper.Stop(); o.Inventory.Now().Removed {
			_ = os.Remove(data)
		}
	}()
	var parts sync.WaitGroup
	parts.Go(func() { d.status.run(ctx) })
	parts.Go(func() { d.publish(ctx) })
	parts.Go(func() { d.follow(ctx) })
	parts.Go(func() { d.release(ctx) })
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("dra: %w", cause)
	}
	return nil
}

// hear passes on kubelet's answer to the driver's registration. The library only logs it.
func (d *driver) hear(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if s, ok := request.(*registerapi.RegistrationStatus); ok && d.Refused != nil {
		reason := ""
		if !s.PluginRegistered {
			reason = cmp.Or(s.Error, "kubelet gives no reason")
		}
		d.Refused(reason)
	}
	return next(ctx, request)
}

// A driver answers kubelet's requests. It is a kubeletplugin.DRAPlugin: it gets one request at a
// time.
type driver struct {
	Options
	healthServer
	status *status
	fail   func(error)
}

// follow updates the claims' statuses when the inventory changes.
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

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. It holds the units that are allocated
// to the claims. The agent steers the pod's packets later, when the pod has its address.
func (d *driver) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := d.prepare(ctx, c)
		if err != nil {
			d.Log.ErrorContext(ctx, "claim refused", "claim", c.Namespace+"/"+c.Name, "error", err)
			err = fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		out[c.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	d.status.look()
	return out, nil
}

func (d *driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) (out []kubeletplugin.Device, err error) {
	h, err := HoldOf(d.Inventory.Now(), c)
	if err != nil {
		return nil, err
	}
	if err := d.Inventory.Hold(ctx, h); err != nil {
		return nil, err
	}
	for _, held := range h.Units {
		of := kubeletplugin.Device{Requests: []string{held.Request}, PoolName: d.Node, DeviceName: device(held)}
		if held.Share != "" {
			of.ShareID = ptr.To(types.UID(held.Share))
		}
		out = append(out, of)
	}
	return out, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin. It releases the claims' units.
func (d *driver) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		err := d.Inventory.Release(ctx, string(c.UID))
		if err != nil {
			d.Log.ErrorContext(ctx, "claim not released", "claim", c.Namespace+"/"+c.Name, "error", err)
		}
		out[c.UID] = err
	}
	d.status.look()
	return out, nil
}

// HandleError implements kubeletplugin.DRAPlugin. It ends the driver, because the error says that a
// gRPC server has failed, so that kubelet cannot reach the driver.
func (d *driver) HandleError(_ context.Context, err error, what string) {
	d.fail(fmt.Errorf("%s: %w", what, err))
}

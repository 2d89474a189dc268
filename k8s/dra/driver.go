// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/classes"
)

// Options of a driver.
type Options struct {
	// Node is the name of the node, which is also that of its pool of devices.
	Node string
	// Client may read Nodes and ResourceClaims, write ResourceSlices, and the
	// status of ResourceClaims.
	Client    kubernetes.Interface
	Inventory classes.Inventory
	// KubeletDir is kubelet's directory, /var/lib/kubelet on most nodes.
	KubeletDir string
	Log        *slog.Logger
}

// Run offers the node's lanes until ctx ends. What it has published stays: the
// lanes do too, and pods in them.
func Run(ctx context.Context, o Options) error {
	data := filepath.Join(o.KubeletDir, "plugins", DriverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &driver{Options: o, healthServer: healthServer{inventory: o.Inventory}, status: newStatus(o), fatal: cancel}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(DriverName), kubeletplugin.NodeName(o.Node), kubeletplugin.KubeClient(o.Client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.KubeletDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return fmt.Errorf("dra: %w", err)
	}
	defer helper.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.status.run(ctx)
	}()
	d.publish(ctx, helper)
	<-done
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("dra: %w", cause)
	}
	return nil
}

// publish keeps the ResourceSlices as the inventory is.
func (d *driver) publish(ctx context.Context, helper *kubeletplugin.Helper) {
	var last []resourceapi.Device
	for first := true; ctx.Err() == nil; first = false {
		s := d.Inventory.Now()
		devices := Devices(s)
		if first || !reflect.DeepEqual(devices, last) {
			err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
				d.Node: {Slices: slicesOf(devices)},
			}})
			if err != nil {
				d.HandleError(ctx, err, "publish devices")
			}
			last = devices
		}
		select {
		case <-ctx.Done():
		case <-d.Inventory.Changed(s.Version):
			d.status.look()
		}
	}
}

// slicesOf divides devices into slices of as many as one may have.
func slicesOf(devices []resourceapi.Device) []resourceslice.Slice {
	if len(devices) == 0 {
		return []resourceslice.Slice{{}} // a pool without devices: what was there goes
	}
	var out []resourceslice.Slice
	for len(devices) > 0 {
		n := min(len(devices), resourceapi.ResourceSliceMaxDevices)
		out = append(out, resourceslice.Slice{Devices: devices[:n]})
		devices = devices[n:]
	}
	return out
}

// A driver answers kubelet.
type driver struct {
	Options
	healthServer
	status *status
	fatal  context.CancelCauseFunc
}

// PrepareResourceClaims implements kubeletplugin.DRAPlugin: it holds what is
// allocated. The pod's packets are steered when it has its address.
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := d.prepare(ctx, c)
		if err != nil {
			d.Log.ErrorContext(ctx, "claim refused", "claim", c.Namespace+"/"+c.Name, "error", err)
			err = fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
		}
		out[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	d.status.look()
	return out, nil
}

func (d *driver) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	h, err := holdOf(d.Inventory.Now(), c)
	if err != nil {
		return nil, err
	}
	if err := d.Inventory.Hold(ctx, h); err != nil {
		return nil, err
	}
	var out []kubeletplugin.Device
	for _, held := range h.Units {
		of := kubeletplugin.Device{Requests: []string{held.Request}, PoolName: d.Node, DeviceName: device(held)}
		if held.Share != "" {
			of.ShareID = ptr.To(types.UID(held.Share))
		}
		out = append(out, of)
	}
	return out, nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = d.Inventory.Release(ctx, string(c.UID))
		if out[c.UID] != nil {
			d.Log.ErrorContext(ctx, "claim not released", "claim", c.Namespace+"/"+c.Name, "error", out[c.UID])
		}
	}
	d.status.look()
	return out, nil
}

// HandleError implements kubeletplugin.DRAPlugin: what trying again does not
// help ends Run.
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	d.Log.ErrorContext(ctx, msg, "error", err)
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) {
		// The cluster takes the devices without what its features lack. It is
		// kept: exclusive classes need none of it.
		d.Log.ErrorContext(ctx, "shared classes cannot be offered as claims on this cluster: it lacks the feature DRAConsumableCapacity (on by default from 1.36)")
		return
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

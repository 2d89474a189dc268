// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// If another program changes or deletes a slice, the driver restores it after these times.
// kubeletplugin's own publisher needs 30 s and 60 s, and has no option to change this.
const (
	afterChange   = time.Second
	afterDeletion = 5 * time.Second
)

// publish keeps the ResourceSlices of the node's pool equal to its devices, until ctx ends.
func (d *driver) publish(ctx context.Context) {
	now := d.Inventory.Now()
	controller, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: DriverName, KubeClient: d.Client, Resources: d.resources(now),
		ErrorHandler: d.notPublished,
		Owner:        &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: d.Node}, // deleted with the node
		SyncDelay:    ptr.To(afterChange), MutationCacheTTL: ptr.To(afterDeletion),
	})
	if err != nil {
		d.fail(err)
		return
	}
	defer controller.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Inventory.Changed(now.Version):
		}
		now = d.Inventory.Now()
		controller.Update(d.resources(now))
	}
}

// resources divides the devices into slices of the largest allowed size. If there are no devices,
// it returns one empty slice, so that the pool exists and is empty. If niclane leaves the node, the
// pool goes too.
func (d *driver) resources(now *inventory.Snapshot) *resourceslice.DriverResources {
	if now.Removed {
		return &resourceslice.DriverResources{}
	}
	pool, devices := resourceslice.Pool{}, Devices(now)
	for part := range slices.Chunk(devices, resourceapi.ResourceSliceMaxDevices) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: part})
	}
	if len(devices) == 0 {
		pool.Slices = []resourceslice.Slice{{}}
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.Node: pool}}
}

// notPublished logs that a write failed, or that the cluster does not support a field of shared
// classes. The controller repeats failed writes. Exclusive classes stay published: they do not need
// the field.
func (d *driver) notPublished(ctx context.Context, err error, what string) {
	var dropped *resourceslice.DroppedFieldsError
	if errors.As(err, &dropped) && slices.Contains(dropped.DisabledFeatures(), "DRAConsumableCapacity") {
		d.Log.ErrorContext(ctx, "shared classes cannot be offered as claims on this cluster: "+
			"it lacks the feature DRAConsumableCapacity (on by default from 1.36)", "error", err)
		return
	}
	d.Log.ErrorContext(ctx, "devices could not be published", "what", what, "error", err)
}

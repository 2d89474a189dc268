// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/intent"
)

// healthAgain is the longest time between two reports of the devices' health to kubelet. After 30 s
// without a report, kubelet sets the health to unknown (pkg/kubelet/cm/dra/healthinfo.go).
const healthAgain = 10 * time.Second

// healthServer reports the devices' health to kubelet. kubelet writes it into the status of the
// pods that have the devices (feature ResourceHealthStatus).
type healthServer struct {
	health.UnimplementedDRAResourceHealthServer
	inventory inventory.Inventory
}

// NodeWatchResources implements health.DRAResourceHealthServer. It sends the health of all devices
// at once, after each change, and every healthAgain.
func (h *healthServer) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	again := time.NewTicker(healthAgain)
	defer again.Stop()
	for {
		s := h.inventory.Now()
		if err := stream.Send(healthOf(s, time.Now())); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-h.inventory.Changed(s.Version):
		case <-again.C:
		}
	}
}

// healthOf returns the health of all devices. It includes unhealthy devices: they are not
// published, but pods may have them.
func healthOf(s *inventory.Snapshot, now time.Time) *health.NodeWatchResourcesResponse {
	out := &health.NodeWatchResourcesResponse{}
	for i := range s.Classes {
		c := &s.Classes[i]
		if c.OfferedAs != v1alpha1.OfferedAsClaim {
			continue
		}
		for j := range c.Units {
			u := &c.Units[j]
			d := &health.DeviceHealth{
				Device: &health.DeviceIdentifier{PoolName: s.Node, DeviceName: u.ID},
				Health: health.HealthStatus_HEALTHY, LastUpdatedTime: now.Unix(),
			}
			if u.Unhealthy != "" {
				d.Health, d.Message = health.HealthStatus_UNHEALTHY, u.Unhealthy
			}
			if c.Mode == intent.Shared { // all places of a shared class are one device
				d.Device.DeviceName = c.Name
			}
			out.Devices = append(out.Devices, d)
			if c.Mode == intent.Shared {
				break
			}
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/intent"
)

// HoldOf returns the units of this node that are allocated to a claim, as a Hold.
func HoldOf(s *inventory.Snapshot, c *resourceapi.ResourceClaim) (inventory.Hold, error) {
	h := inventory.Hold{Key: string(c.UID), Claim: c.Namespace + "/" + c.Name}
	if c.Status.Allocation == nil {
		return h, errors.New("nothing is allocated")
	}
	for _, consumer := range c.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			h.Pods = append(h.Pods, string(consumer.UID))
		}
	}
	allocated := c.Status.Allocation.Devices
	for _, r := range allocated.Results {
		if r.Driver != DriverName {
			continue
		}
		held, err := heldOf(s, &r)
		if err == nil {
			held.Parameters, err = parametersOf(allocated.Config, r.Request)
		}
		if err != nil {
			return h, fmt.Errorf("request %q: %w", r.Request, err)
		}
		h.Units = append(h.Units, held)
	}
	if len(h.Units) == 0 {
		return h, fmt.Errorf("no device of %s is allocated", DriverName)
	}
	return h, nil
}

func heldOf(s *inventory.Snapshot, r *resourceapi.DeviceRequestAllocationResult) (inventory.Held, error) {
	held := inventory.Held{Request: r.Request, Share: string(ptr.Deref(r.ShareID, ""))}
	if r.Pool != s.Node {
		return held, fmt.Errorf("device %s is in pool %q, want this node's pool, %q", r.Device, r.Pool, s.Node)
	}
	if ptr.Deref(r.AdminAccess, false) {
		return held, fmt.Errorf("device %s is allocated with admin access, which lanes do not have: a pod "+
			"is in a lane or is not", r.Device)
	}
	for i := range s.Classes {
		c := &s.Classes[i]
		if c.OfferedAs != v1alpha1.OfferedAsClaim {
			continue
		}
		if c.Mode == intent.Shared && c.Name == r.Device {
			held.Class = c.Name
			return held, nil
		}
		if c.Mode != intent.Shared && c.Find(r.Device) != nil {
			held.Class, held.Unit = c.Name, r.Device
			return held, nil
		}
	}
	return held, fmt.Errorf("device %s: %w", r.Device, inventory.ErrNoUnit)
}

// device returns the name under which a held unit was published.
func device(h inventory.Held) string {
	if h.Unit != "" {
		return h.Unit
	}
	return h.Class
}

// releases is the time between two comparisons of the holds with the cluster's claims.
const releases = 5 * time.Minute

// asking is the longest time that one request to the API server may take. A connection can hang.
const asking = 30 * time.Second

// release ends the holds of claims that the cluster no longer has, at once and every releases, until
// ctx ends. kubelet releases a claim itself, unless it has lost its own records: after kubeadm reset
// and join.
func (d *driver) release(ctx context.Context) {
	tick := time.NewTicker(releases)
	defer tick.Stop()
	for {
		for _, h := range d.Inventory.Holds() {
			gone, err := d.gone(ctx, &h)
			if err == nil && gone {
				d.Log.WarnContext(ctx, "claim released that no longer exists", "claim", h.Claim)
				err = d.Inventory.Release(ctx, h.Key)
			}
			if err != nil && ctx.Err() == nil {
				d.Log.WarnContext(ctx, "holds not compared with the cluster's claims", "claim", h.Claim, "error", err)
				break // the API server does not answer
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// gone reports whether the cluster no longer has the claim of a hold. Another claim may have its
// name.
func (d *driver) gone(ctx context.Context, h *inventory.Hold) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	namespace, name, _ := strings.Cut(h.Claim, "/")
	c, err := d.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && string(c.UID) != h.Key, err
}

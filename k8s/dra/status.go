// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
)

// Conditions of a device in a claim's status.
const (
	// ConditionReady is true if the claim has the lane, and the lane is healthy.
	ConditionReady = "Ready"
	// These are the reasons of ConditionReady.
	reasonHeld      = "Held"
	reasonUnhealthy = "Unhealthy"
)

// fieldManager is the name under which the driver applies the claims' statuses (server-side apply).
const fieldManager = "niclane-dra"

// retry is the time from a failed write to the API server until the next attempt.
const retry = 5 * time.Second

// A status writes the node's state into the claims' statuses, in the background. Callers never wait
// for the API server.
type status struct {
	inventory inventory.Inventory
	options   Options
	looks     chan struct{}
	// written has what was last written about each claim, by the claim's UID.
	written map[string]writtenStatus
}

// A writtenStatus is the status of a hold's claim, as text.
type writtenStatus struct {
	hold inventory.Hold
	text string
}

func newStatus(o Options) *status {
	return &status{inventory: o.Inventory, options: o, looks: make(chan struct{}, 1),
		written: map[string]writtenStatus{}}
}

// look makes run compare the claims' statuses with the node's state soon.
func (s *status) look() {
	select {
	case s.looks <- struct{}{}:
	default: // an earlier call already makes run look
	}
}

func (s *status) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if err := s.write(ctx); err != nil && ctx.Err() == nil {
			s.options.Log.ErrorContext(ctx, "status of claims could not be written", "error", err, "again", retry)
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.looks:
		case <-again:
		}
	}
}

// write applies the statuses that have changed.
func (s *status) write(ctx context.Context) error {
	snapshot, holds := s.inventory.Now(), s.inventory.Holds()
	kept := map[string]writtenStatus{}
	var errs []error
	if snapshot.Removed { // the holds have gone, and the pods with the claims run on
		for key, w := range s.written {
			if !slices.ContainsFunc(holds, func(h inventory.Hold) bool { return h.Key == key }) {
				holds = append(holds, w.hold)
			}
		}
	}
	for _, h := range holds {
		devices := statusOf(snapshot, h)
		text := digest(devices)
		if s.written[h.Key].text != text {
			if err := s.apply(ctx, h, devices); err != nil {
				errs = append(errs, fmt.Errorf("claim %s: %w", h.Claim, err))
				continue
			}
		}
		kept[h.Key] = writtenStatus{h, text}
	}
	s.written = kept
	return errors.Join(errs...)
}

func (s *status) apply(ctx context.Context, h inventory.Hold, devices []resourceapi.AllocatedDeviceStatus) error {
	namespace, name, _ := strings.Cut(h.Claim, "/")
	now := metav1.Now()
	for _, d := range devices {
		for i := range d.Conditions {
			d.Conditions[i].LastTransitionTime = now
		}
	}
	says, err := json.Marshal(map[string]any{
		"apiVersion": resourceapi.SchemeGroupVersion.String(), "kind": "ResourceClaim",
		// With the UID, the server refuses the write if a new claim has the same name.
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": h.Key},
		"status":   resourceapi.ResourceClaimStatus{Devices: devices},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, err = s.options.Client.ResourceV1().ResourceClaims(namespace).Patch(ctx, name, types.ApplyPatchType, says,
		metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // the claim, or its allocation, no longer exists
	}
	return err
}

// laneData is the field Data of a device's status in a claim: the lane that the claim has.
type laneData struct {
	Class  string `json:"class"`
	Unit   string `json:"unit,omitempty"`
	Lane   string `json:"lane,omitempty"`
	Dev    string `json:"dev,omitempty"`
	Queues []int  `json:"queues,omitempty"`
}

// statusOf returns the statuses of a claim's devices, as the node's inventory has them now.
func statusOf(s *inventory.Snapshot, h inventory.Hold) []resourceapi.AllocatedDeviceStatus {
	var out []resourceapi.AllocatedDeviceStatus
	for _, held := range h.Units {
		data := laneData{Class: held.Class, Unit: held.Unit}
		state, reason, message := metav1.ConditionTrue, reasonHeld, "the claim has the lane"
		c := s.Find(held.Class)
		switch u := unitOf(c, held); {
		case u == nil:
			state, reason, message = metav1.ConditionFalse, reasonUnhealthy, "the node does not have the lane"
		default:
			data.Lane, data.Queues = u.Lane, u.Queues
			if u.Unhealthy != "" {
				state, reason, message = metav1.ConditionFalse, reasonUnhealthy, u.Unhealthy
			}
		}
		if s.Device != nil {
			data.Dev = s.Device.Name
		}
		raw, _ := json.Marshal(data) // no error with strings and numbers
		d := resourceapi.AllocatedDeviceStatus{
			Driver: DriverName, Pool: s.Node, Device: device(held), Data: &runtime.RawExtension{Raw: raw},
			Conditions: []metav1.Condition{{Type: ConditionReady, Status: state, Reason: reason, Message: message}},
		}
		if held.Share != "" {
			d.ShareID = &held.Share
		}
		out = append(out, d)
	}
	return out
}

// unitOf returns the held unit. For a shared class it returns any unit: all are places in the
// same queue set.
func unitOf(c *inventory.Class, held inventory.Held) *inventory.Unit {
	switch {
	case c == nil || len(c.Units) == 0:
		return nil
	case held.Unit != "":
		return c.Find(held.Unit)
	}
	return &c.Units[0]
}

func digest(devices []resourceapi.AllocatedDeviceStatus) string {
	text, _ := json.Marshal(devices) // no error with strings and numbers
	return string(text)
}

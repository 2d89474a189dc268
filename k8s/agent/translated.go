// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/networks/nat"
	"github.com/niclane/niclane/k8s/networks/reach"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// Each search for translated packets walks the kernel's connection table twice: 16 ms for an empty
// table of 262144 buckets, as on a large node. The pause after a search is 10000 times as long as
// the search, so that searches take a ten-thousandth of a CPU. It is at least leastPause and at
// most mostPause, so that nat.Memory forgets nothing between two searches (nat.Remembered).
const (
	leastPause = time.Minute
	mostPause  = 5 * time.Minute
	pauses     = 10000 // length of the pause in times of the search before it
)

// pause returns the time until the next search. took is the time that the last search took.
func pause(took time.Duration) time.Duration {
	return min(max(took*pauses, leastPause), mostPause)
}

// watchTranslated searches, again and again, for pods' packets that are outside their lane because
// the node translates their address.
func (a *Agent) watchTranslated(ctx context.Context) error {
	next := time.NewTimer(leastPause)
	defer next.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-next.C:
			err := a.translated(now, nat.Flows)
			next.Reset(pause(time.Since(now)))
			if err != nil && err.Error() != failing {
				a.o.Log.Warn("it is not known whether the node translates packets of pods in lanes", "error", err)
			}
			if failing = ""; err != nil {
				failing = err.Error()
			}
		}
	}
}

// translated searches once, and sends an event about the pod for each new finding.
func (a *Agent) translated(now time.Time, flows func(func(nat.Flow)) error) error {
	devices := a.lanes.Status().Devices
	uplink, err := reach.Through(devices)
	if err != nil {
		return err
	}
	found, err := nat.Find(flows, a.lanes.Attachments(), uplink)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		sees, err := applier.SeeTranslated(devices)
		if err != nil {
			return err
		}
		found = nat.Outside(found, sees, a.steered())
	}
	a.mu.Lock()
	fresh, changed := a.bypassed.Add(now, found)
	a.mu.Unlock()
	for _, f := range fresh {
		a.attacher.Event(f.Namespace, f.Pod, f.UID, events.LaneBypassed, f.Message(a.o.Services))
	}
	if changed {
		wake(a.changed)
	}
	return nil
}

// steered reports whether received packets are steered to lanes.
func (a *Agent) steered() bool {
	return slices.ContainsFunc(a.lanes.Now().Classes, func(c inventory.Class) bool {
		how := c.Mechanisms[string(device.PartSteering)]
		return how != "" && how != plan.ByShared
	})
}

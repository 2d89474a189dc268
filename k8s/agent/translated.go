// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/k8s/card"
	"github.com/niclane/niclane/k8s/classes"
	"github.com/niclane/niclane/k8s/nat"
	"github.com/niclane/niclane/k8s/reach"
	"github.com/niclane/niclane/plan"
)

// translations are looked for so often: each look walks the kernel's table of
// connections.
const translations = time.Minute

// watchTranslated looks for packets of pods that the card sees under another
// address than their lane has.
func (a *Agent) watchTranslated(ctx context.Context) error {
	tick := time.NewTicker(translations)
	defer tick.Stop()
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			err := a.translated(now, nat.Flows)
			if err != nil && err.Error() != failing {
				a.o.Log.Warn("it is not known whether the node translates what pods in lanes send", "error", err)
			}
			if failing = ""; err != nil {
				failing = err.Error()
			}
		}
	}
}

// translated looks once, and says what is new on the pods that it concerns.
func (a *Agent) translated(now time.Time, flows func(func(nat.Flow)) error) error {
	devices := a.node.Status().Devices
	uplink, err := reach.Through(devices)
	if err != nil {
		return err
	}
	found, err := nat.Find(flows, a.node.Attachments(), uplink)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		sees, err := card.SeesTranslated(devices)
		if err != nil {
			return err
		}
		found = nat.Outside(found, sees, a.steered())
	}
	a.mu.Lock()
	fresh, changed := a.bypassed.Add(now, found)
	a.mu.Unlock()
	own := a.cluster.Addresses()
	for _, f := range fresh {
		a.attacher.Event(f.Namespace, f.Pod, f.UID, "LaneBypassed", f.Message(own))
	}
	if changed {
		wake(a.changed)
	}
	return nil
}

// steered reports whether what arrives is told apart by lane.
func (a *Agent) steered() bool {
	return slices.ContainsFunc(a.node.Now().Classes, func(c classes.Class) bool {
		how := c.Realisations[string(device.PartSteering)]
		return how != "" && how != plan.RealShared
	})
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/niclane/niclane/k8s/nat"
	"github.com/niclane/niclane/k8s/reach"
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
	uplink, err := reach.Through(a.node.Status().Devices)
	if err != nil {
		return err
	}
	found, err := nat.Find(flows, a.node.Attachments(), uplink)
	if err != nil {
		return err
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

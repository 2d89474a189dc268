// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/nri"
)

// nriPatience is how long the agent may have no connection to the runtime before it sends an event.
// A restart of the runtime takes less time.
const nriPatience = 5 * time.Second

// newNRI returns the agent's NRI plugin, to which the runtime reports pods.
func (a *Agent) newNRI() *nri.Plugin {
	return nri.New(nri.Options{
		Socket: a.o.NRI, Lanes: nriLanes{a.attacher, a.lanes, a.o.Socket}, Bandwidth: a.o.NRIBandwidth,
		Runtime: a.cluster.Runtime, Log: a.o.Log,
		Connected: func() { wake(a.seen) },
		Failing: func(since time.Time, err error) {
			if time.Since(since) > nriPatience && a.cluster.Synced() {
				go a.cluster.Event(context.Background(), "Node", "", a.o.Node, a.o.Node, events.NRINotConnected,
					"NRI is not connected, so pods are put into lanes only after they have started: "+err.Error())
			}
		},
	})
}

// nriLanes has the functions of the agent that the NRI plugin calls.
type nriLanes struct {
	*attach.Attacher
	*lanes.Manager
	socket string // niclane-cni's socket; the list of pods that ask for lanes is in the same directory
}

// Asks reports whether the pod asks for a lane. It uses what the agent knows now, and the list that
// the agent wrote before its last end.
func (l nriLanes) Asks(namespace, name, uid string) bool {
	return l.Attacher.Asks(namespace, name, uid) || cni.AsksForLane(l.socket, uid)
}

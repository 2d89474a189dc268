// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/nri"
)

// nriPatience is how long the runtime may be away, as when it is started again, before
// people are told.
const nriPatience = 5 * time.Second

// newNRI makes the plugin by which the runtime tells of pods.
func (a *Agent) newNRI() *nri.Plugin {
	return nri.New(nri.Options{
		Socket: a.o.NRI, Lanes: nriLanes{a.attacher, a.lanes, a.o.Socket}, Bandwidth: a.o.NRIBandwidth,
		Runtime: a.cluster.Runtime, Log: a.o.Log,
		Connected: func() { wake(a.seen) },
		Failing: func(since time.Time, err error) {
			if time.Since(since) > nriPatience && a.cluster.Synced() {
				go a.cluster.Event(context.Background(), "Node", "", a.o.Node, a.o.Node, "NRINotConnected",
					"pods are put into lanes only after they have started, by NRI: "+err.Error())
			}
		},
	})
}

// nriLanes is what the plugin asks of the agent.
type nriLanes struct {
	*attach.Attacher
	*lanes.Manager
	socket string // of niclane-cni, beside which pods that ask for lanes are written down
}

// Asks by what is known now, or was written down before the agent ended.
func (l nriLanes) Asks(namespace, name, uid string) bool {
	return l.Attacher.Asks(namespace, name, uid) || cni.AsksForLane(l.socket, uid)
}

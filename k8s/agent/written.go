// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/cni"
)

// writePods writes down which pods ask for a lane, for niclane-cni to know while nobody
// answers it, and which can have none, for it not to ask. It waits for nothing else: a
// pod's network is made a moment after the API server has bound it to the node.
func (a *Agent) writePods(ctx context.Context) error {
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.pods:
		}
		if !a.cluster.Synced() {
			continue // what was written before is better than a part
		}
		err := a.writeKnown()
		if err != nil && err.Error() != failing {
			a.o.Log.Warn("pods could not be written down for niclane-cni", "error", err)
		}
		if failing = ""; err != nil {
			failing = err.Error()
		}
	}
}

func (a *Agent) writeKnown() error {
	var ask, cannot []string
	for _, pod := range a.cluster.Pods() {
		switch {
		case a.attacher.AsksForLane(pod):
			ask = append(ask, kube.SandboxUID(pod))
		case !attach.MayHaveLane(pod):
			// By the UID that the API server has given it, and not by that of a
			// static pod, an annotation that anybody can give to a pod of his:
			// whom it names would start without its lane.
			cannot = append(cannot, string(pod.UID))
		}
	}
	return errors.Join(cni.WriteLanePods(a.o.Socket, ask), cni.WriteOtherPods(a.o.Socket, cannot))
}

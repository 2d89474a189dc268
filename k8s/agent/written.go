// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/cni"
)

// writePods writes two lists for niclane-cni after each change of the node's pods. One has the pods
// that ask for a lane; niclane-cni reads it if the agent does not answer. The other has the pods
// that cannot have a lane; niclane-cni does not ask for them. writePods writes at once, because the
// runtime makes a pod's network soon after the API server has bound the pod to the node.
func (a *Agent) writePods(ctx context.Context) error {
	failing := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.pods:
		}
		if !a.cluster.Synced() {
			continue // an old complete list is better than an incomplete one
		}
		if _, leave := a.leaves(); leave {
			continue
		}
		err := a.writeKnown()
		if err != nil && err.Error() != failing {
			a.o.Log.Warn("the lists of pods for niclane-cni could not be written", "error", err)
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
			// Only the API server's UID is safe here. The UID of a static pod is in an annotation that any
			// user can write. If it named another pod, that pod would start without its lane.
			cannot = append(cannot, string(pod.UID))
		}
	}
	return errors.Join(cni.WriteLanePods(a.o.Socket, ask), cni.WriteOtherPods(a.o.Socket, cannot))
}

// SPDX-License-Identifier: Apache-2.0

// Package pod runs a server in a pod of a Kubernetes cluster: it makes the pod,
// waits until it is ready, notices when it ends, and deletes it.
//
// It talks to the cluster through the kubectl command, with whatever it is
// configured with, so that niclane needs none of Kubernetes' modules, and a
// person sees what it does by typing the same. Every pod has the label
// niclane.dev/bench with the run's own value, and a deadline at which kubelet
// ends it should nobody be there to delete it. A LanePolicy that variants want
// it makes and deletes in the same way. It touches no other object.
package pod

// SPDX-License-Identifier: Apache-2.0

// Package pod runs a server in a pod of a Kubernetes cluster: it creates the pod, waits until
// it is ready, notices when it ends, and deletes it.
//
// It talks to the cluster through the kubectl command and its configuration. So niclane needs
// no Kubernetes modules, and a user can type the same commands. Every pod has the label
// niclane.dev/bench with the run's own value, and a deadline at which kubelet ends it if the
// run does not delete it. Package pod creates and deletes a variant's LanePolicy in the same
// way. It touches no other object.
package pod

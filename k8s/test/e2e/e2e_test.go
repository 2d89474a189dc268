// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs pods with lanes in clusters of every supported Kubernetes release. It
// installs niclane with the commands of docs/how-to/kubernetes-install.md, from the image, chart and manifests
// that users get.
package e2e_test

import (
	"os"
	"testing"

	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	callerMain()
	os.Exit(m.Run())
}

// policy has an exclusive and a shared class for each of the two ways to offer lanes. All lanes
// share the receive queues: a veth has no rules, and the threads of XDP's cpumap are kernel
// threads, which a machine of namespaces does not see.
const policy = `
apiVersion: niclane.dev/v1alpha1
kind: LanePolicy
metadata: {name: test}
spec:
  uplink: {dev: up0, linkRate: 1G, force: {queue-set: shared}}
  classes:
  - {name: redis, offeredAs: Resource, hostNetwork: true, queues: 1, capacity: 2, guarantee: 10%}
  - {name: web, offeredAs: Resource, mode: Shared, queues: 1, capacity: 120}
  - {name: claimed, queues: 1, capacity: 2}
  - {name: together, mode: Shared, queues: 1, capacity: 2}
`

// TestKubernetes runs a cluster for each release, and all parts of the test on it: from the
// installation to a node that loses its power. A part needs the state that the parts before it
// leave.
func TestKubernetes(t *testing.T) {
	only := os.Getenv("NICLANE_TEST_K8S")
	if only == "" {
		t.Skip("make test-k8s runs whole clusters: it takes minutes")
	}
	image := buildImage(t)
	for _, r := range cluster.Releases {
		if only != "1" && only != r.Name {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			s := &suite{Cluster: cluster.Start(t, r), image: image}
			s.before.objects, s.before.files = s.objects(t), s.files(t)
			for _, part := range []struct {
				name string
				test func(*suite, *testing.T)
			}{
				{"in and out by Helm", (*suite).helm},
				{"install", func(s *suite, t *testing.T) { s.install(t) }},
				{"policies that the API server refuses", (*suite).policies},
				{"first policy", (*suite).first},
				{"pod without a lane", (*suite).plain},
				{"pod with a lane", (*suite).lane},
				{"pods of the host's network by control group", (*suite).hostByCgroup},
				{"more pods than lanes", (*suite).tooMany},
				{"annotation that cannot be read", (*suite).badAnnotation},
				{"policy that cannot be made", (*suite).badPolicy},
				{"command in the agent's container", (*suite).command},
				{"class that kubelet refuses", (*suite).refusedByKubelet},
				{"two policies", (*suite).twoPolicies},
				{"class changed under a pod", (*suite).changed},
				{"claim", (*suite).claim},
				{"claims of a shared lane", (*suite).claimTogether},
				{"token of an agent", (*suite).token},
				{"limits that a claim serves", (*suite).limitsByClaim},
				{"quota", (*suite).quota},
				{"default of a namespace", (*suite).defaults},
				{"cnitool", (*suite).cnitool},
				{"agent killed", (*suite).killed},
				{"state of another release", (*suite).otherRelease},
				{"API server away", (*suite).away},
				{"kubelet restarted", (*suite).kubelet},
				{"110 pods", (*suite).many},
				{"churn", (*suite).churn},
				{"node rebooted", (*suite).rebooted},
				{"agent gone", (*suite).gone},
				{"agent by NRI", (*suite).nri},
				{"out by kubectl", (*suite).outByKubectl},
			} {
				if !t.Run(part.name, func(t *testing.T) { part.test(s, t) }) && part.name == "install" {
					return // the other parts need it
				}
			}
		})
	}
}

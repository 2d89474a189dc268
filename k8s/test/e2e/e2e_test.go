// SPDX-License-Identifier: Apache-2.0

// Package e2e_test runs pods with lanes in real clusters. It uses the published image, chart
// and plain manifests, by the commands of docs/kubernetes.md, on every supported release of
// Kubernetes.
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

// policy has a class for each way to offer lanes. On receive the lanes share the queues: a
// veth has no rules, and XDP's cpumap uses kernel threads, which a machine of namespaces does
// not see.
const policy = `
apiVersion: niclane.dev/v1alpha1
kind: LanePolicy
metadata: {name: test}
spec:
  uplink: {dev: up0, linkRate: 1gbit, force: {queue-set: shared}}
  classes:
  - {name: redis, hostNetwork: true, queues: 1, sets: 2, guarantee: 10%}
  - {name: web, mode: shared, queues: 1, members: 120}
  - {name: claimed, offeredAs: claim, queues: 1, sets: 2}
  - {name: together, offeredAs: claim, mode: shared, queues: 1, members: 2}
`

// TestKubernetes runs one cluster for each release, from an empty one to one whose node has
// lost its power. The parts depend on each other, in this order.
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
				{"pod without a lane", (*suite).plain},
				{"pod with a lane", (*suite).lane},
				{"pods of the host's network by control group", (*suite).hostByCgroup},
				{"more pods than lanes", (*suite).tooMany},
				{"annotation that cannot be read", (*suite).badAnnotation},
				{"policy that cannot be made", (*suite).badPolicy},
				{"class changed under a pod", (*suite).changed},
				{"claim", (*suite).claim},
				{"claims of a shared lane", (*suite).claimTogether},
				{"cnitool", (*suite).cnitool},
				{"agent killed", (*suite).killed},
				{"kubelet restarted", (*suite).kubelet},
				{"110 pods", (*suite).many},
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

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	nri "github.com/containerd/nri/pkg/api"

	"github.com/niclane/niclane/k8s/nri/nritest"
)

// BenchmarkNRIPodWithoutLane measures how long a runtime with NRI waits for the agent when a pod
// without a lane starts. The pod has one container, so there are two calls. 110 other pods are in
// lanes. The runtime is only NRI's own code for the runtime's side.
func BenchmarkNRIPodWithoutLane(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "nri.sock")
	r := nritest.Start(b, socket)
	defer r.Stop()
	r.BlockPluginSync().Unblock()
	agent := startAgent(b, buildAgent(b), inLanes, "-nri", socket)
	<-r.Synced
	settle(b, agent.Pid)
	pod := plainPod()
	sandbox := &nri.PodSandbox{
		Id: "plain", Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID), Ips: []string{pod.Status.PodIP},
		Pid:   uint32(agent.Pid),
		Linux: &nri.LinuxPodSandbox{Namespaces: []*nri.LinuxNamespace{{Type: "network", Path: "/run/netns/plain"}}},
	}
	var took []time.Duration
	for b.Loop() {
		time.Sleep(100 * time.Millisecond) // the same pause between pods as in BenchmarkPod
		begin := time.Now()
		err := r.RunPodSandbox(b.Context(), &nri.RunPodSandboxRequest{Pod: sandbox})
		if err == nil {
			_, err = r.CreateContainer(b.Context(),
				&nri.CreateContainerRequest{Pod: sandbox,
					Container: &nri.Container{Id: "c", PodSandboxId: "plain", Name: "c"}})
		}
		took = append(took, time.Since(begin))
		if err == nil {
			err = r.StopPodSandbox(b.Context(), &nri.StopPodSandboxRequest{Pod: sandbox})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	asked := fmt.Sprintf(`niclane_request_seconds_count{command="ADD",lane="false"} %d`, 2*len(took))
	if now := scrape(agent.Socket); !strings.Contains(now, asked+"\n") {
		b.Fatalf("not %s: %s", asked, now)
	}
	b.ReportMetric(0, "ns/op") // hides the time per iteration, which includes the pauses
	slices.Sort(took)
	at := func(p float64) float64 { return took[int(p*float64(len(took)-1))].Seconds() * 1e3 }
	b.ReportMetric(at(0.5), "P50-ms")
	b.ReportMetric(at(0.99), "P99-ms")
}

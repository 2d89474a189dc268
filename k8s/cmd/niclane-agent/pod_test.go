// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/cni"
)

// BenchmarkPod measures how long the agent takes when a pod ends and starts again, without the
// plugin's process and without a cluster. The pod is the only one in a lane, or one of 110. The
// agent is idle between the calls, as between the pods of a real node.
func BenchmarkPod(b *testing.B) {
	for _, pods := range []int{1, inLanes} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			agent := startAgent(b, buildAgent(b), pods)
			settle(b, agent.Pid)
			pod := aPod(pods - 1)
			r := cni.Request{
				Version: cni.Version, Sandbox: "sb", IfName: "eth0", HostIf: "cni0",
				Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
				Addrs: []netip.Addr{netip.MustParseAddr(pod.Status.PodIP)},
			}
			took := map[string][]time.Duration{}
			before := spent(b, agent.Pid)
			for b.Loop() {
				for _, command := range []string{cni.Del, cni.Add} {
					r.Command = command
					time.Sleep(100 * time.Millisecond)
					begin := time.Now()
					lane, err := cni.Call(b.Context(), agent.CNI, r, time.Minute)
					took[command] = append(took[command], time.Since(begin))
					if err != nil || lane != (command == cni.Add) {
						b.Fatalf("%s: lane %t, %v", command, lane, err)
					}
				}
			}
			b.ReportMetric(0, "ns/op") // hides the time per iteration, which includes the pauses
			// CPU time includes the agent's work after its answer, which can delay the next pod.
			b.ReportMetric((spent(b, agent.Pid)-before)/float64(b.N)*1e3, "CPU-ms/op")
			for command, all := range took {
				slices.Sort(all)
				at := func(p float64) float64 { return all[int(p*float64(len(all)-1))].Seconds() * 1e3 }
				b.ReportMetric(at(0.5), command+"-p50-ms")
				b.ReportMetric(at(0.99), command+"-p99-ms")
			}
		})
	}
}

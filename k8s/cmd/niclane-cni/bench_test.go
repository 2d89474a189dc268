// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/cniproto"
)

// BenchmarkPodWithoutLane is what niclane-cni adds to the start of a pod without a
// lane: the whole of a process, as it is built for the image, from its start to its
// end. The goal is 2 ms at P99 on a node that is not busy otherwise. "true" is the price of any
// process here, "nothing" of a program in Go that does nothing. Without the agent it asks
// kubelet itself, unless the agent has written down that the pod can have no lane.
func BenchmarkPodWithoutLane(b *testing.B) {
	dir := b.TempDir()
	plugin, sockets := shipped, &bed{dir: dir}
	if err := os.WriteFile(dir+"/nothing.go", []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := buildAs(dir+"/nothing", dir+"/nothing.go", runtime.GOARCH); err != nil {
		b.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"niclane-cni","socket":%q,"podResources":%q,"capabilities":{"bandwidth":true}%s}`,
		sockets.path("cni.sock"), sockets.path("kubelet.sock"), withPrev)
	measure := func(name string, argv ...string) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			var faults int64
			for b.Loop() {
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Stdin = strings.NewReader(conf)
				cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=sb", "CNI_NETNS=/run/netns/absent", "CNI_IFNAME=eth0", "CNI_PATH="+dir,
					"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=plain;K8S_POD_INFRA_CONTAINER_ID=sb;K8S_POD_UID=u")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				began := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatalf("%v: %s", err, stderr.String())
				}
				took = append(took, time.Since(began))
				faults += cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt
			}
			slices.Sort(took)
			at := func(p float64) float64 { return took[int(p*float64(len(took)-1))].Seconds() * 1e3 }
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(float64(faults)/float64(len(took)), "faults/op")
		})
	}
	measure("true", "/bin/true")
	measure("nothing", dir+"/nothing")
	sockets.kubelet(b)
	measure("agent-down", plugin)
	agent, err := cniproto.Listen(sockets.path("cni.sock"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- cniproto.Serve(ctx, agent, 10*time.Second, func(context.Context, *cniproto.Request, func()) cniproto.Answer { return cniproto.Answer{} })
	}()
	b.Cleanup(func() { cancel(); <-done })
	measure("agent", plugin)
	if err := cniproto.WriteOtherPods(sockets.path("cni.sock"), []string{"u"}); err != nil {
		b.Fatal(err)
	}
	measure("written-down", plugin)
}

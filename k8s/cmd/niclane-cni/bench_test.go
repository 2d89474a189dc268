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
	"testing"
	"time"

	"github.com/niclane/niclane/k8s/cni"
)

// BenchmarkPodWithoutLane measures the whole process of niclane-cni, built as for the image, when a
// pod without a lane starts. It runs niclane-cni in turn with three other programs: portmap of the
// CNI reference plugins for a pod without a hostPort, an empty Go program ("nothing"), and
// /bin/true, which shows the cost of any process. The goal is at most 1.25 times the CPU time of
// portmap. The cases are: with the agent, without it (niclane-cni asks kubelet), and with a pod in
// the agent's list of pods that cannot have a lane.
func BenchmarkPodWithoutLane(b *testing.B) {
	dir := b.TempDir()
	sockets := &bed{dir: dir}
	if err := os.WriteFile(dir+"/nothing.go", []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := buildAs(dir+"/nothing", dir+"/nothing.go", runtime.GOARCH); err != nil {
		b.Fatal(err)
	}
	portmap := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir+"/portmap",
		"github.com/containernetworking/plugins/plugins/meta/portmap")
	portmap.Dir = "../../test/components/plugins"
	portmap.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := portmap.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"n","type":"niclane-cni","socket":%q,"podResources":%q,"capabilities":{"bandwidth":true}%s}`,
		sockets.path("cni.sock"), sockets.path("kubelet.sock"), withPrev)
	type sums struct {
		took []time.Duration
		cpu  time.Duration
	}
	of := map[string]*sums{}
	run := func(name, program string) {
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(conf)
		cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=sb", "CNI_NETNS=/run/netns/absent",
			"CNI_IFNAME=eth0", "CNI_PATH="+dir,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=plain;K8S_POD_INFRA_CONTAINER_ID=sb;K8S_POD_UID=u")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatalf("%s: %v: %s", name, err, stderr.String())
		}
		s := of[name]
		if s == nil {
			s = new(sums)
			of[name] = s
		}
		s.took = append(s.took, time.Since(began))
		s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	measure := func(what string) {
		b.Run(what, func(b *testing.B) {
			clear(of)
			for b.Loop() {
				run("true", "/bin/true")
				run("nothing", dir+"/nothing")
				run("portmap", dir+"/portmap")
				run("niclane-cni", shipped)
			}
			for name, s := range of {
				slices.Sort(s.took)
				at := func(p float64) float64 { return s.took[int(p*float64(len(s.took)-1))].Seconds() * 1e3 }
				b.ReportMetric(at(0.5), name+"-p50-ms")
				b.ReportMetric(at(0.99), name+"-p99-ms")
				b.ReportMetric(float64(s.cpu.Microseconds())/float64(len(s.took)), name+"-cpu-us")
				b.ReportMetric(float64(s.cpu)/float64(of["portmap"].cpu), name+"-of-portmap")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	sockets.kubelet(b)
	measure("agent-down")
	agent, err := cni.Listen(sockets.path("cni.sock"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- cni.Serve(ctx, agent, 10*time.Second, func(context.Context, *cni.Request, func()) cni.Answer {
			return cni.Answer{}
		})
	}()
	b.Cleanup(func() { cancel(); <-done })
	measure("agent")
	if err := cni.WriteOtherPods(sockets.path("cni.sock"), []string{"u"}); err != nil {
		b.Fatal(err)
	}
	measure("written-down")
}

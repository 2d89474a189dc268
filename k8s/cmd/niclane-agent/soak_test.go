// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/soak"
	"github.com/niclane/niclane/k8s/cni"
)

// TestSoak ends and starts a pod again and again on a node with 110 pods, reads metrics, and causes
// kernel notifications, with continuous garbage collection. It checks that the agent's memory does
// not grow and that no answer is lost. go test takes seconds, make soak a given time.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	length := soak.Length(t, 6*time.Second)
	agent := startAgent(t, buildAgent(t, soak.Overlay(t, "../../..", "k8s/cmd/niclane-agent")), inLanes)
	pod := aPod(inLanes - 1)
	r := cni.Request{
		Version: cni.Version, Sandbox: "sb", IfName: "eth0", HostIf: "cni0",
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Addrs: []netip.Addr{netip.MustParseAddr(pod.Status.PodIP)},
	}
	ask := func() error {
		for _, r.Command = range []string{cni.Del, cni.Add} {
			lane, err := cni.Call(t.Context(), agent.CNI, r, time.Minute)
			if err != nil || lane != (r.Command == cni.Add) {
				return fmt.Errorf("%s: in a lane: %t, %w", r.Command, lane, err)
			}
		}
		if scrape(agent.Socket) == "" {
			return errors.New("no metrics")
		}
		return nil
	}
	n := 0
	soak.Run(t, length, []*soak.Process{{Name: "agent", PID: agent.Pid, Ask: ask}}, func() {
		if out, err := exec.Command("ip", "addr", []string{"add", "del"}[n%2], "192.0.2.2/32", "dev",
			"up0").CombinedOutput(); err != nil {
			t.Fatalf("ip addr: %v: %s", err, out)
		}
		n++
	}, func() {})
}

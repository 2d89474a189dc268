// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/badapi"
	"github.com/niclane/niclane/k8s/cni"
)

// TestChaos lets the API server misbehave in each way. Meanwhile the lanes stay, a pod that the agent
// knows starts in its lane, and the agent neither ends nor asks without a pause. Afterwards the agent
// applies the change that its policy had meanwhile.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute")
	}
	const (
		faulty    = 5 * time.Second
		converges = 90 * time.Second // docs/kubernetes.md states it
	)
	// A connection without an answer is given up after 6 s, not 45: these are client-go's own settings.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "3")
	program := buildAgent(t)
	pod := aPod(1)
	r := cni.Request{
		Version: cni.Version, Sandbox: "sb", IfName: "eth0", HostIf: "cni0",
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Addrs: []netip.Addr{netip.MustParseAddr(pod.Status.PodIP)},
	}
	for _, fault := range badapi.All {
		t.Run(fault.Name, func(t *testing.T) {
			// A new agent each time: client-go waits longer after each failure, for two minutes.
			a := newAPI(2)
			s := badapi.New(t, a)
			agent := startAgentAt(t, s.URL, program, 2)
			lanes, requests, connections := classes(t), total(s), s.Connections()
			events := s.Requests()["POST events"]
			begin := time.Now()
			s.Set(fault.Fault)
			a.add(a.lists["/apis/niclane.dev/v1alpha1/lanenodes"], laneNode(2))
			for _, r.Command = range []string{cni.Del, cni.Add} {
				lane, err := cni.Call(t.Context(), agent.CNI, r, 20*time.Second)
				if err != nil || lane != (r.Command == cni.Add) {
					t.Errorf("%s: in a lane: %t, %v", r.Command, lane, err)
				}
			}
			// The fault must last: a loop without a pause shows in the number of requests.
			time.Sleep(faulty - time.Since(begin))
			if got := classes(t); len(got) != len(lanes) {
				t.Errorf("lanes during the fault:\n%s\nbefore it:\n%s", strings.Join(got, "\n"), strings.Join(lanes, "\n"))
			}
			s.Set(badapi.None)
			requests, connections = total(s)-requests, s.Connections()-connections
			begin = time.Now()
			const want = "rate 110Mbit"
			for !strings.Contains(strings.Join(classes(t), "\n"), want) {
				if time.Since(begin) > converges {
					t.Fatalf("not in %v: %s:\n%s", converges, want, strings.Join(classes(t), "\n"))
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Logf("during the fault: %d requests, %d connections; the change is applied %.1f s after it", requests,
				connections, time.Since(begin).Seconds())
			// Five watches, the status, slices and claims: each is tried a few times.
			if requests > 100 || connections > 20 {
				t.Errorf("%d requests and %d connections during the fault", requests, connections)
			}
			if got := s.Requests()["POST events"] - events; got > 3 {
				t.Errorf("%d events", got)
			}
			if err := syscall.Kill(agent.Pid, 0); err != nil || scrape(agent.Socket) == "" {
				t.Fatalf("the agent has ended: %v", err)
			}
		})
	}
}

// classes returns the uplink's HTB classes.
func classes(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("tc", "class", "show", "dev", "up0").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func total(s *badapi.Server) (n int) {
	for _, count := range s.Requests() {
		n += count
	}
	return n
}

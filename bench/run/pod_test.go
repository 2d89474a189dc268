// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

const podFile = `version: 1
title: a pod
server:
  kind: pod
  port: 7000
  manifest: |
    {apiVersion: v1, kind: Pod, metadata: {name: cache}, spec: {containers: [{name: app, args: ["$port", "$connections"]}]}}
workload: {protocol: memcached}
load: {rates: 1000, connections: 4}
variants:
  - {name: off}
  - {name: lane, server: {limits: {niclane.dev/redis: 1}}, lane-policy: "{apiVersion: niclane.dev/v1, kind: LanePolicy, metadata: {name: p}, spec: {uplink: {linkRate: $link}}}"}
`

// kubectl is a script that acts as kubectl. Each pod that it creates has the status in $0.status at
// once. It appends its calls to $0.calls.
const kubectl = `#!/bin/sh
echo "$*" >>"$0.calls"
case "$*" in
version*) echo '{"serverVersion": {"gitVersion": "v1.99.0"}}' ;;
*"get lanepolicy"*) echo '{"status": {"nodeCount": 1, "conditions": [{"type": "Accepted", "status": "True"}, {"type": "Ready", "status": "True"}]}}' ;;
create*) cat | tee -a "$0.calls" ;;
*--watch*) echo "{\"type\": \"ADDED\", \"object\": {\"metadata\": {\"name\": \"$3\"}, \"spec\": {\"nodeName\": \"n1\", \"containers\": [{\"name\": \"app\"}]}, \"status\": $(cat "$0.status")}}"
	exec sleep 60 ;;
esac
`

func podRun(t *testing.T, status string) (*measurement, func() string) {
	t.Helper()
	f := parseOn(t, podFile)
	dir := t.TempDir()
	path := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(path, []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".status", []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return &measurement{f: f, e: f.Experiment, on: fakes(nil)}, func() string {
		text, err := os.ReadFile(path + ".calls")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// TestPod: each variant's server is a pod of its own. Clients use the pod's address. The pod is
// deleted when the server is stopped.
func TestPod(t *testing.T) {
	m, calls := podRun(t, `{"podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "app", "image": "cache:1"}]}`)
	var r result.Result
	if err := m.pods.reach(t.Context(), &r); err != nil || r.Environment.Versions["Kubernetes"] != "v1.99.0" {
		t.Fatal(err, r.Environment.Versions)
	}
	if m.address() != "10.0.0.1:7000" {
		t.Errorf("before there is a pod: %s", m.address())
	}
	x, err := m.StartServer(t.Context(), m.e.Variants[1])
	if err != nil {
		t.Fatal(err)
	}
	if x.Address != "10.1.2.3:7000" || m.address() != x.Address || m.values(lab.SUT)["address"] != "10.1.2.3" ||
		x.Version != "cache:1 on n1" {
		t.Errorf("%+v, %s", x, m.address())
	}
	if err := m.alive(); err != nil {
		t.Error(err)
	}
	if _, err := m.StartServer(t.Context(), m.e.Variants[0]); err != nil {
		t.Fatal(err)
	}
	made := strings.Index(calls(), `"kind":"LanePolicy"`)
	if !strings.Contains(calls(), `"linkRate":"1G"`) {
		t.Errorf("$link is not the link's rate as a quantity:\n%s", calls())
	}
	first := strings.Index(calls(), `"kind":"Pod"`)
	gone := strings.Index(calls(), "delete pod")
	without := strings.Index(calls(), "delete lanepolicy p-")
	if second := strings.LastIndex(calls(), `"kind":"Pod"`); made < 0 || first < made || gone < first ||
		without < gone || second < without {
		t.Errorf("want a policy and a pod made, the pod and the policy deleted, and a pod made:\n%s", calls())
	}
	if err := m.stopServers(); err != nil || m.address() != "10.0.0.1:7000" {
		t.Errorf("%v, %s", err, m.address())
	}
	errtest.Has(t, "calls", calls(), `"args":["7000","68"]`, `"limits":{"niclane.dev/redis":"1"}`,
		`"niclane.dev/bench":"`+m.pods.run+`"`, "delete pod cache-")
}

// TestPodDescribed: the description of a run lists its pods.
func TestPodDescribed(t *testing.T) {
	m, _ := podRun(t, "{}")
	var b strings.Builder
	if err := Describe(&b, m.f); err != nil {
		t.Fatal(err)
	}
	errtest.Has(t, "what is said before", b.String(), "server: pod on port 7000",
		"off: without noise, the pod of the manifest, no LanePolicy\n",
		"lane: without noise, a pod with niclane.dev/redis: 1, a LanePolicy\n")
}

// TestPodEnds: if a pod has ended, the run reports that in place of errors that follow from it. The
// pod is deleted.
func TestPodEnds(t *testing.T) {
	m, calls := podRun(t, `{"phase": "Failed", "reason": "OutOfmemory"}`)
	_, err := m.StartServer(t.Context(), m.e.Variants[0])
	errtest.Says(t, "a pod that ends", err, "it has ended: Failed; OutOfmemory")
	if errors.Is(m.because(os.ErrDeadlineExceeded), os.ErrDeadlineExceeded) {
		t.Error("a generator's timeout hides the pod's end")
	}
	if strings.Contains(calls(), "limits") {
		t.Errorf("limits without a variant's:\n%s", calls())
	}
	if err := m.stopServers(); err != nil || !strings.Contains(calls(), "delete pod cache-") {
		t.Errorf("%v\n%s", err, calls())
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nri tests an agent to which the runtime reports pods by NRI, without niclane-cni. It must do the
// same for pods as with niclane-cni. If the runtime has no NRI, an event about the node must say
// so.
func (s *suite) nri(t *testing.T) {
	manifests, err := os.ReadFile("../../dist/manifests/niclane-nri.yaml")
	must(t, err)
	// These replacements have the same effect as the chart's value services.enabled.
	text := string(manifests)
	for before, after := range map[string]string{
		"        - -nri-bandwidth=true\n": "        - -nri-bandwidth=true\n        - -services\n",
		"resources: [nodes, pods]":        "resources: [nodes, pods, services]",
	} {
		if strings.Count(text, before) != 1 {
			t.Fatalf("not once in the manifests: %q", before)
		}
		text = strings.Replace(text, before, after, 1)
	}
	s.removeAgents(t)
	// The test uses kubectl, as users do. outByKubectl later applies the unchanged manifests.
	path := s.Control.OnDisk("niclane-nri.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o644))
	_, err = s.Shell(checkout, "kubectl apply --server-side -f "+path)
	must(t, err)
	s.agentPod(t)
	if s.Containerd == nil {
		s.nodeSays(t, "NRINotConnected", "this node's containerd://1.6.")
		s.plain(t)
		return
	}
	if list := s.list(t); strings.Contains(list, "niclane-cni") {
		t.Errorf("niclane-cni is chained:\n%s", list)
	}
	s.condition(t, "Applied", "True", "")
	s.untilAllocatable(t, "redis", 2)
	if s.extended() {
		s.echo(t, s.untilRunning(t, "waits"), 1<<10)
		s.remove(t, waiting)
	}
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"pod without a lane", s.plain},
		{"pod with a lane", s.lane},
		{"before it starts", s.beforeItStarts},
		{"annotation that cannot be read", s.refusedByNRI},
		{"pod of the host's network", s.hostNetwork},
		{"Service of a pod with a lane", s.service},
		{"containerd restarted", s.containerd},
		{"agent killed", s.killed},
		{"pod without a lane while the agent is killed", s.plainWithoutAgent},
	} {
		t.Run(part.name, part.test)
	}
}

// nodeSays waits for an event about the node with this reason and text.
func (s *suite) nodeSays(t *testing.T, reason, text string) {
	t.Helper()
	until(t, time.Minute, reason+" says "+text, func() (bool, string) {
		events, err := s.Client.CoreV1().Events("default").List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		must(t, err)
		all := ""
		for _, e := range events.Items {
			all += e.Message + "; "
		}
		return strings.Contains(all, text), all + s.agentLog(t)
	})
}

// service tests a Service that is created after its pod and deleted before it. The cluster has no
// kube-proxy, so no packets come by the Service. The test reads the agent's state file instead.
func (s *suite) service(t *testing.T) {
	text := strings.Replace(pod("served", limits("redis"), ""), "metadata: {", "metadata: {labels: {app: served}, ", 1)
	s.remove(t, text)
	s.running(t, text, "served")
	const service = `
apiVersion: v1
kind: Service
metadata: {name: served}
spec:
  type: NodePort
  selector: {app: served}
  ports: [{port: 70, targetPort: 7, nodePort: 30007}]
`
	member := func(want bool) {
		t.Helper()
		until(t, 20*time.Second, "the node port is the lane's", func() (bool, string) {
			state := s.state(t)
			return strings.Contains(state, `"ports":["30007"]`) == want && strings.Contains(state, `"ports":["7"]`),
				state + s.agentLog(t)
		})
	}
	must(t, s.Apply(service))
	member(true)
	must(t, s.Delete(service))
	member(false)
}

// state returns the text of the agent's file with the pods in lanes.
func (s *suite) state(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(s.Node.Path("/run/niclane/kubernetes/pods.*.json"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("files of pods in lanes: %q, want one", files)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	return string(text)
}

// told fails the test if the runtime did not report the pod before it ran, or if the agent had to
// find a running pod by itself.
func (s *suite) told(t *testing.T, pod string) {
	t.Helper()
	state := s.state(t)
	if !strings.Contains(state, `"pod":"`+pod+`"`) || strings.Contains(state, `"sandbox":"pod:`) {
		t.Errorf("what the agent knows: %s", state)
	}
}

// beforeItStarts checks that the runtime reports a pod before it runs, with its interface, and
// later reports its end.
func (s *suite) beforeItStarts(t *testing.T) {
	text := pod("told", limits("redis"), "")
	s.running(t, text, "told")
	s.told(t, "told")
	if _, found := s.metric(t, "niclane_pod_packets_total", `pod="told"`); !found {
		t.Error("the agent does not know its interface")
	}
	must(t, s.Delete(text))
	until(t, 20*time.Second, "it is out of its lane", func() (bool, string) {
		_, found := s.metric(t, "niclane_pod_lane", `pod="told"`)
		return !found, s.agentLog(t)
	})
}

// refusedByNRI checks that a pod whose lane cannot be made does not start, because the agent
// returns an error to the runtime by NRI.
func (s *suite) refusedByNRI(t *testing.T) {
	text := pod("typo-nri", limits("redis"), `niclane.dev/lanes: '{"app": {"prots": ["7"]}}'`)
	s.remove(t, text)
	must(t, s.Apply(text))
	s.stuck(t, "typo-nri", "NRI RunPodSandbox failed")
	s.stuck(t, "typo-nri", "prots")
	beside := pod("beside-nri", "", "")
	s.remove(t, beside)
	s.running(t, beside, "beside-nri")
}

// plainWithoutAgent checks that a pod without a lane starts while the agent is killed repeatedly.
func (s *suite) plainWithoutAgent(t *testing.T) {
	text := pod("alone-nri", "", "")
	s.remove(t, text)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_, _ = s.Node.Output("pkill", "-KILL", "-x", "niclane-agent") // it may not run at this moment
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	p := s.running(t, text, "alone-nri")
	close(stop)
	<-stopped
	s.echo(t, p, 1<<10)
}

// containerd restarts the runtime, and checks that a pod in a lane stays there and that the next
// pod gets its lane.
func (s *suite) containerd(t *testing.T) {
	text := pod("outlives", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "outlives")
	must(t, s.Stop("containerd"))
	s.echo(t, p, 1<<10)
	must(t, s.StartContainerd())
	must(t, s.UntilReady())
	s.untilAllocatable(t, "redis", 2)
	t.Run("the next pod", s.lane)
	s.beforeItStarts(t)
	s.echo(t, p, 1<<10)
	if _, found := s.metric(t, "niclane_pod_lane", `pod="outlives"`, `class="redis"`); !found {
		t.Error("the pod that was there has lost its lane")
	}
}

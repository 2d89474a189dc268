// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// plain tests a pod that does not ask for a lane: it runs, and is in no lane.
func (s *suite) plain(t *testing.T) {
	text := pod("plain", "", "")
	s.remove(t, text)
	s.echo(t, s.running(t, text, "plain"), 1<<10)
	if _, found := s.metric(t, "niclane_pod_lane", `pod="plain"`); found {
		t.Error("it is in a lane")
	}
}

// lane checks, by counters in the agent's metrics, that a pod's packets take its lane and no other
// lane.
func (s *suite) lane(t *testing.T) {
	text := pod("lane", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "lane")
	if _, found := s.metric(t, "niclane_pod_lane", `pod="lane"`, `class="redis"`); !found {
		t.Error("the agent does not have it in a lane")
	}
	const bytes = 1 << 20
	before, _ := s.metric(t, "niclane_class_bytes_total{", `lane="redis-`)
	others, _ := s.metric(t, "niclane_class_bytes_total{")
	others -= before
	s.echo(t, p, bytes)
	sent, _ := s.metric(t, "niclane_class_bytes_total{", `lane="redis-`)
	if want := float64(bytes * len(p.Status.PodIPs)); sent-before < want {
		t.Errorf("the lane has sent %.0f bytes, want at least the %.0f that the pod has", sent-before, want)
	}
	all, _ := s.metric(t, "niclane_class_bytes_total{")
	if foreign := all - sent - others; foreign > bytes/2 {
		t.Errorf("%.0f bytes have left by other lanes", foreign)
	}
}

// tooMany starts three pods for two queue sets. The third waits until one of the others has ended.
func (s *suite) tooMany(t *testing.T) {
	for i := range 3 {
		text := pod(fmt.Sprintf("many-%d", i), limits("redis"), "")
		s.remove(t, text)
		must(t, s.Apply(text))
		if i < 2 {
			s.untilRunning(t, fmt.Sprintf("many-%d", i))
		}
	}
	s.stuck(t, "many-2", "Insufficient niclane.dev/redis")
	must(t, s.Delete(pod("many-0", limits("redis"), "")))
	s.untilRunning(t, "many-2")
}

// badAnnotation tests a pod with an invalid annotation, and one that names a port of the node:
// they do not start, and report why. A pod of the host's network gets no lane of a class that
// is not for such pods. A pod without a lane starts beside them.
func (s *suite) badAnnotation(t *testing.T) {
	text := pod("typo", limits("redis"), `niclane.dev/lanes: '{"app": {"prots": ["7"]}}'`)
	s.remove(t, text)
	must(t, s.Apply(text))
	s.stuck(t, "typo", "prots")
	thief := pod("thief", limits("redis"), `niclane.dev/lanes: '{"app": {"ports": ["7"], "frontends": ["10250"]}}'`)
	s.remove(t, thief)
	must(t, s.Apply(thief))
	s.stuck(t, "thief", "frontends: not taken any more")
	beyond := hostPod("beyond", "10251", limits("web"))
	s.remove(t, beyond)
	p := s.running(t, beyond, "beyond")
	const refused = "class web has no lanes for pods of the host's network"
	until(t, time.Minute, "beyond says "+refused, func() (bool, string) {
		how := s.describe(t.Context(), p)
		return strings.Contains(how, refused), how
	})
	beside := pod("beside", "", "")
	s.remove(t, beside)
	s.running(t, beside, "beside")
}

// command runs the command that is in the agent's container: it knows the agent's lanes.
func (s *suite) command(t *testing.T) {
	out, err := s.Shell(checkout, "kubectl --namespace niclane-system exec "+s.agentPod(t).Name+
		" --container agent -- /niclane status")
	must(t, err)
	if !strings.Contains(out, "kubernetes.yaml: in force") || !strings.Contains(out, "redis-0") {
		t.Errorf("status:\n%s", out)
	}
}

// badPolicy applies a policy that asks for more queues than the card has, and checks that the
// present lanes stay.
func (s *suite) badPolicy(t *testing.T) {
	text := pod("stays", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "stays")
	must(t, s.Apply(strings.Replace(policy, "queues: 1, capacity: 2, guarantee: 10%", "queues: 100, capacity: 2", 1)))
	s.condition(t, "Applied", "False", "")
	s.echo(t, p, 1<<10)
	if got := s.allocatable(t, "redis"); got != 2 {
		t.Errorf("%d of redis are allocatable, want the 2 that there are", got)
	}
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
}

// refusedByKubelet gives a class a resource name that kubelet refuses, as only a LaneNode
// that was changed by hand can have. The node and the policy say so, in kubelet's words.
func (s *suite) refusedByKubelet(t *testing.T) {
	rename := func(patch string) {
		t.Helper()
		_, err := s.Dynamic.Resource(laneNodes).Patch(t.Context(), cluster.Node, types.JSONPatchType, []byte(patch),
			metav1.PatchOptions{})
		must(t, err)
	}
	const words = `resource kubernetes.io/l: kubelet refuses it: the ResourceName "kubernetes.io/l" is invalid`
	rename(`[{"op": "add", "path": "/spec/classes/0/resourceName", "value": "kubernetes.io/l"}]`)
	s.condition(t, "Offered", "False", "KubeletRefused "+words)
	s.policyCondition(t, "test", "Ready", "False", words)
	s.nodeSays(t, "KubeletRefused", words)
	rename(`[{"op": "remove", "path": "/spec/classes/0/resourceName"}]`)
	s.condition(t, "Offered", "True", "")
	s.policyCondition(t, "test", "Ready", "True", "")
	s.untilAllocatable(t, "redis", 2)
}

// twoPolicies makes a second policy of the same priority. The node stays with the older one and
// follows its changes. The second one says so, and the node follows it when the first is gone.
func (s *suite) twoPolicies(t *testing.T) {
	second := strings.NewReplacer("name: test", "name: second", "name: web", "name: other").Replace(policy)
	s.remove(t, second)
	must(t, s.Apply(second))
	s.policyCondition(t, "second", "Accepted", "False", "Conflicted policy test has the same priority, 0, and is older")
	s.policyCondition(t, "second", "Ready", "False", "NoNodes")
	must(t, s.Apply(strings.Replace(policy, "guarantee: 10%", "guarantee: 11%", 1)))
	s.condition(t, "Applied", "True", "")
	s.policyCondition(t, "test", "Ready", "True", "")
	s.policyCondition(t, "second", "Accepted", "False", "ClassConflicted class redis has guarantee 10%, not 11% as in the "+
		"older policy test")
	must(t, s.Delete(policy))
	s.policyCondition(t, "second", "Ready", "True", "is applied on 1 of 1 node")
	s.untilAllocatable(t, "other", 120)
	must(t, s.Apply(policy))
	must(t, s.Delete(second))
	s.condition(t, "Applied", "True", "")
	s.untilAllocatable(t, "web", 120)
}

// changed removes the class of a running pod from the policy, and checks that the pod keeps its
// lane until it ends.
func (s *suite) changed(t *testing.T) {
	text := pod("kept", limits("redis"), "")
	p := s.running(t, text, "kept")
	without := strings.Replace(policy, "  - {name: redis, offeredAs: Resource, hostNetwork: true, queues: 1, capacity: 2, "+
		"guarantee: 10%}\n", "", 1)
	must(t, s.Apply(without))
	s.condition(t, "Applied", "False", "redis")
	s.echo(t, p, 1<<10)
	if _, found := s.metric(t, "niclane_pod_lane", `pod="kept"`); !found {
		t.Error("it has lost its lane")
	}
	must(t, s.Delete(text))
	s.condition(t, "Applied", "True", "")
	s.untilAllocatable(t, "redis", 0)
	must(t, s.Apply(policy))
	s.untilAllocatable(t, "redis", 2)
}

// claims returns a ResourceClaimTemplate for lanes of a class, as YAML. of returns the YAML of a
// pod with such a claim.
func claims(class string) (template string, of func(pod string) string) {
	template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: ` + class + `}
spec:
  spec:
    devices:
      requests: [{name: lane, exactly: {deviceClassName: niclane.dev, selectors: [{cel: {expression: "device.attributes['niclane.dev'].class == '` + class + `'"}}]}}]
`
	return template, func(name string) string {
		return strings.Replace(pod(name, "claims: [{name: lane}]", ""), "  containers:",
			"  resourceClaims: [{name: lane, resourceClaimTemplateName: "+class+"}]\n  containers:", 1)
	}
}

// claim tests lanes of an exclusive class that pods get by Dynamic Resource Allocation.
func (s *suite) claim(t *testing.T) {
	template, of := claims("claimed")
	must(t, s.Apply(template))
	s.remove(t, template)
	for i := range 3 {
		name := fmt.Sprintf("claim-%d", i)
		s.remove(t, of(name))
		must(t, s.Apply(of(name)))
		if i < 2 {
			s.echo(t, s.untilRunning(t, name), 1<<10)
			if _, found := s.metric(t, "niclane_pod_lane", `pod="`+name+`"`, `class="claimed"`); !found {
				t.Errorf("%s is in no lane", name)
			}
		}
	}
	s.stuck(t, "claim-2", "cannot allocate all claims")
	until(t, 30*time.Second, "the claims say what they have", func() (bool, string) {
		list, err := s.Client.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		ready := 0
		for _, c := range list.Items {
			for _, d := range c.Status.Devices {
				if len(d.Conditions) == 1 && d.Conditions[0].Type == "Ready" &&
					d.Conditions[0].Status == metav1.ConditionTrue && d.Data != nil {
					ready++
				}
			}
		}
		return ready == 2, fmt.Sprintf("%d of %d", ready, len(list.Items))
	})
	must(t, s.Delete(of("claim-0")))
	s.untilRunning(t, "claim-2")
}

// extended reports whether the release serves extended resources by claims (DRAExtendedResource).
func (s *suite) extended() bool { return s.Name != "v1.34" }

// limitsByClaim tests a pod that asks by limits for a class that is offered as claims. It needs no
// device plugin.
func (s *suite) limitsByClaim(t *testing.T) {
	if !s.extended() {
		t.Skip("the release has no DRAExtendedResource")
	}
	for _, class := range []string{"claimed", "together"} {
		name := "by-limits-" + class
		text := pod(name, limits(class), "")
		s.remove(t, text)
		p := s.running(t, text, name)
		if _, found := s.metric(t, "niclane_pod_lane", `pod="`+name+`"`, `class="`+class+`"`); !found {
			t.Errorf("%s is in no lane", name)
		}
		s.echo(t, p, 1<<10)
	}
}

// claimTogether tests three claims for a shared class with two places: the third pod has to wait.
func (s *suite) claimTogether(t *testing.T) {
	template, of := claims("together")
	must(t, s.Apply(template))
	s.remove(t, template)
	for i := range 3 {
		name := fmt.Sprintf("together-%d", i)
		s.remove(t, of(name))
		must(t, s.Apply(of(name)))
		if i < 2 {
			s.echo(t, s.untilRunning(t, name), 1<<10)
			if _, found := s.metric(t, "niclane_pod_lane", `pod="`+name+`"`, `lane="together"`); !found {
				t.Errorf("%s is in no lane", name)
			}
		}
	}
	s.stuck(t, "together-2", "cannot allocate all claims")
	must(t, s.Delete(of("together-0")))
	s.untilRunning(t, "together-2")
}

// cnitool calls the node's CNI plugins as a runtime does, for a network namespace without a pod. It
// uses the node's list of plugins, but with CNI version 1.1, which the node's runtime may not
// support.
func (s *suite) cnitool(t *testing.T) {
	list := regexp.MustCompile(`"cniVersion": *"[0-9.]+"`).ReplaceAllString(s.list(t), `"cniVersion": "1.1.0"`)
	_, err := s.Node.Pipe(list, "sh", "-c", "mkdir -p /run/cnitool && cat >/run/cnitool/10-test.conflist")
	must(t, err)
	// cnitool's GC names no namespace as used. In the pods' network, it would free the addresses of all pods.
	other := regexp.MustCompile(`"name": *"test"`).ReplaceAllString(list, `"name": "tool"`)
	_, err = s.Node.Pipe(other, "sh", "-c", "cat >/run/cnitool/20-tool.conflist")
	must(t, err)
	run := func(args ...string) (string, error) {
		return s.Node.Output(append([]string{"/usr/bin/env", "CNI_PATH=/opt/cni/bin", "NETCONFPATH=/run/cnitool",
			"CNI_IFNAME=eth9", "/opt/cni/bin/cnitool"}, args...)...)
	}
	if _, err := s.Node.Output("ip", "netns", "add", "tool"); err != nil {
		t.Fatal(err)
	}
	const ns = "/run/netns/tool"
	for _, command := range []string{"add", "check", "del", "del"} {
		out, err := run(command, "test", ns)
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if _, err := run("add", "test", ns); err != nil {
		t.Error(err)
	}
	if _, err := s.Node.Output("ip", "netns", "del", "tool"); err != nil {
		t.Fatal(err)
	}
	if out, err := run("del", "test", ns); err != nil {
		t.Errorf("del of a namespace that has gone: %v\n%s", err, out)
	}
	for _, command := range []string{"gc", "status"} {
		if out, err := run(command, "tool", ns); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// killed kills the agent while a pod is in a lane, and checks that the pod stays in its lane.
func (s *suite) killed(t *testing.T) {
	text := pod("survivor", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "survivor")
	before := restarts(s.agentPod(t))
	if _, err := s.Node.Output("pkill", "-KILL", "-x", "niclane-agent"); err != nil {
		t.Fatal(err)
	}
	s.echo(t, p, 1<<10)
	until(t, 2*time.Minute, "the agent has started again", func() (bool, string) {
		return restarts(s.agentPod(t)) > before, ""
	})
	until(t, time.Minute, "the pod is in its lane", func() (bool, string) {
		_, found := s.metric(t, "niclane_pod_lane", `pod="survivor"`, `class="redis"`)
		return found, s.agentLog(t)
	})
	s.untilAllocatable(t, "redis", 2)
	s.echo(t, p, 1<<10)
}

// otherRelease gives the agent's state files another schema, as an upgrade or a downgrade does, and
// kills the agent. The next one finds the pods again, with a lane as a resource and with one as a
// claim.
func (s *suite) otherRelease(t *testing.T) {
	template, of := claims("claimed")
	must(t, s.Apply(template))
	s.remove(t, template)
	texts := map[string]string{"by-resource": pod("by-resource", limits("redis"), ""), "by-claim": of("by-claim")}
	running := map[string]*corev1.Pod{}
	for name, text := range texts {
		s.remove(t, text)
		running[name] = s.running(t, text, name)
	}
	before := restarts(s.agentPod(t))
	_, err := s.Node.Output("/bin/sh", "-c", `set -e
for f in /var/lib/niclane/kubernetes/state.json /run/niclane/kubernetes/pods.*.json; do
  sed -i 's/"schema":[0-9]*/"schema":99/' $f; grep -q '"schema":99' $f
done
pkill -KILL -x niclane-agent`)
	must(t, err)
	until(t, 2*time.Minute, "the agent has started again", func() (bool, string) {
		return restarts(s.agentPod(t)) > before, ""
	})
	for name, p := range running {
		until(t, time.Minute, name+" is in its lane", func() (bool, string) {
			_, found := s.metric(t, "niclane_pod_lane", `pod="`+name+`"`)
			return found, s.describe(t.Context(), p) + s.agentLog(t)
		})
		s.echo(t, p, 1<<10)
	}
	s.nodeSays(t, "StateRebuilt", "state.json: schema 99 of another release")
	s.untilAllocatable(t, "redis", 2)
}

// away stops the API server's process, so that connections hang, and kills the agent meanwhile. The
// pod keeps its lane, and the agent knows it without an API server. Afterwards the next change of the
// policy arrives, and no agent has started again.
func (s *suite) away(t *testing.T) {
	text := pod("lasts", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "lasts")
	before, events := restarts(s.agentPod(t)), s.events(t)
	pid := func() string {
		out, _ := s.Node.Output("pgrep", "-x", "niclane-agent") // an error: it does not run
		return out
	}
	must(t, s.Signal("kube-apiserver", unix.SIGSTOP))
	hanging := true
	resume := func() {
		if hanging {
			hanging = false
			must(t, s.Signal("kube-apiserver", unix.SIGCONT))
		}
	}
	defer resume()
	s.echo(t, p, 1<<10)
	old := pid()
	_, err := s.Node.Output("pkill", "-KILL", "-x", "niclane-agent")
	must(t, err)
	until(t, 2*time.Minute, "the agent has started again", func() (bool, string) { now := pid(); return now != "" && now != old, now })
	s.untilInLane(t, "lasts", "redis")
	s.echo(t, p, 1<<10)
	agent := pid()
	resume()
	must(t, s.Apply(strings.Replace(policy, "guarantee: 10%", "guarantee: 12%", 1)))
	until(t, 90*time.Second, "the agent has the change", func() (bool, string) {
		n, err := s.Dynamic.Resource(laneNodes).Get(t.Context(), cluster.Node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		p, err := s.Dynamic.Resource(policies).Get(t.Context(), "test", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		observed, _, _ := unstructured.NestedInt64(n.Object, "status", "policyGeneration")
		return observed == p.GetGeneration(), fmt.Sprint(n.Object["status"])
	})
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
	if now := restarts(s.agentPod(t)); now != before+1 || pid() != agent {
		t.Errorf("the agent has started %d times, want once, after it was killed", now-before)
	}
	if got := s.events(t) - events; got > 5 {
		t.Errorf("%d new events of niclane", got)
	}
	s.untilInLane(t, "lasts", "redis")
}

// untilInLane waits until the agent has a pod in a lane of a class.
func (s *suite) untilInLane(t testing.TB, pod, class string) {
	t.Helper()
	until(t, time.Minute, pod+" is in its lane", func() (bool, string) {
		_, found := s.metric(t, "niclane_pod_lane", `pod="`+pod+`"`, `class="`+class+`"`)
		return found, s.agentLog(t)
	})
}

func restarts(p *corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// kubelet restarts kubelet, and checks that the agent registers its lanes again.
func (s *suite) kubelet(t *testing.T) {
	must(t, s.Stop("kubelet"))
	must(t, s.StartKubelet())
	must(t, s.UntilReady())
	s.untilAllocatable(t, "redis", 2)
	text := pod("after", limits("redis"), "")
	s.remove(t, text)
	s.echo(t, s.running(t, text, "after"), 1<<10)
}

// many starts 110 pods in one shared lane: the most that kubelet allows on a node by default.
func (s *suite) many(t *testing.T) {
	const n = 110
	begin := time.Now()
	var texts []string
	for i := range n {
		texts = append(texts, pod(fmt.Sprintf("crowd-%d", i), limits("web"), ""))
	}
	all := strings.Join(texts, "---")
	t.Cleanup(func() {
		ctx, grace := context.WithoutCancel(t.Context()), int64(0)
		for i := range n {
			err := s.Client.CoreV1().Pods("default").Delete(ctx, fmt.Sprintf("crowd-%d", i),
				metav1.DeleteOptions{GracePeriodSeconds: &grace})
			if err != nil {
				t.Log(err)
			}
		}
	})
	must(t, s.Apply(all))
	until(t, 10*time.Minute, "all run", func() (bool, string) {
		list, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		running := 0
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Name, "crowd-") && ready(&list.Items[i]) {
				running++
			}
		}
		return running == n, fmt.Sprintf("%d of %d", running, n)
	})
	t.Logf("%d pods with lanes run after %.0f s", n, time.Since(begin).Seconds())
	// kubelet repeats failed starts, so all pods run even if there were errors. Only events show the
	// errors.
	events, err := s.Client.CoreV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=LaneFailed"})
	must(t, err)
	for _, e := range events.Items {
		if strings.HasPrefix(e.InvolvedObject.Name, "crowd-") {
			t.Errorf("%s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
	if got, _ := s.metric(t, "niclane_pod_lane", `pod="crowd-`, `class="web"`); got != n {
		t.Errorf("%v pods are in the lane, want %d", got, n)
	}
	s.echo(t, s.untilRunning(t, "crowd-109"), 1<<10)
}

// rebooted reboots the node, which loses everything except its disk, and checks that a pod gets its
// lane again. The pod belongs to a Deployment: after a reboot, kubelet fails all pods with devices,
// because the device plugins have not registered yet. Then the Deployment creates a new pod.
func (s *suite) rebooted(t *testing.T) {
	text := `
apiVersion: apps/v1
kind: Deployment
metadata: {name: returns}
spec:
  selector: {matchLabels: {app: returns}}
  template:
    metadata: {labels: {app: returns}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: ` + cluster.Image + `, imagePullPolicy: Never, args: [serve, ":7"], ports: [{containerPort: 7}], resources: {limits: {niclane.dev/redis: 1}}}
`
	s.remove(t, text)
	must(t, s.Apply(text))
	running := func(not string) (found *corev1.Pod) {
		t.Helper()
		until(t, 2*time.Minute, "the pod is in its lane", func() (bool, string) {
			list, err := s.Client.CoreV1().Pods("default").List(t.Context(),
				metav1.ListOptions{LabelSelector: "app=returns"})
			must(t, err)
			how := s.agentLog(t)
			for i := range list.Items {
				p := &list.Items[i]
				_, in := s.metric(t, "niclane_pod_lane", `pod="`+p.Name+`"`, `class="redis"`)
				if ready(p) && in && string(p.UID) != not {
					found = p
					return true, ""
				}
				how = s.describe(t.Context(), p) + "\n" + how
			}
			return false, how
		})
		return found
	}
	before := running("")
	s.reboot(t)
	s.agentPod(t)
	s.condition(t, "Applied", "True", "")
	s.echo(t, running(string(before.UID)), 1<<10)
	s.untilAllocatable(t, "redis", 2)
}

// reboot reboots the node. A machine of namespaces boots with the kernel's boot ID, which stays: to
// niclane, the journals of before are of another network namespace, not of another boot.
func (s *suite) reboot(t *testing.T) {
	t.Helper()
	journals, err := filepath.Glob(s.Node.OnDisk("var/lib/niclane/*.journal*"))
	must(t, err)
	must(t, s.RebootNode())
	for _, path := range journals {
		must(t, os.Remove(path))
	}
}

// gone removes the agents, and checks that the node works: pods without lanes start and end, and a
// pod with a lane goes on and ends.
func (s *suite) gone(t *testing.T) {
	in := pod("stays-in", limits("redis"), "")
	p := s.running(t, in, "stays-in")
	s.removeAgents(t)
	text := pod("alone", "", "")
	s.echo(t, s.running(t, text, "alone"), 1<<10)
	must(t, s.Delete(text))
	s.echo(t, p, 1<<10)
	must(t, s.Delete(in))
	if s.extended() {
		must(t, s.Apply(waiting))
		s.stuck(t, "waits", "FailedPrepareDynamicResources")
	}
}

// waiting is a pod that is bound to the node while the agent is away. The next part runs it.
var waiting = pod("waits", limits("claimed"), "")

func (s *suite) removeAgents(t *testing.T) {
	t.Helper()
	err := s.Client.AppsV1().DaemonSets(namespace).Delete(t.Context(), "niclane-agent", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	s.untilNoAgent(t)
}

func (s *suite) untilNoAgent(t testing.TB) {
	t.Helper()
	until(t, time.Minute, "the agent has gone", func() (bool, string) {
		list, err := s.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: agentLabel})
		must(t, err)
		return len(list.Items) == 0, fmt.Sprint(len(list.Items))
	})
}

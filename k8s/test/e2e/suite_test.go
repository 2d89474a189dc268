// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/machine"
)

const (
	namespace = "niclane-system"
	// agentLabel selects the agents' pods.
	agentLabel = "app.kubernetes.io/name=niclane-agent"
)

// A suite is one cluster with niclane's image. Its methods are the parts of the tests.
type suite struct {
	*cluster.Cluster
	image string
	// chart is written in place of the published chart in documented commands, "" for that of the
	// checkout. dir is the directory in which they run, "" for the checkout.
	chart, dir string
	// before has the state before niclane was installed: the cluster's objects, and the node's files.
	before struct {
		objects map[string]bool
		files   map[string]any
	}
}

// buildImage builds niclane's container image for this architecture, as make images does. It
// returns the path of its archive.
func buildImage(t testing.TB) string {
	dir := t.TempDir()
	command := exec.Command("go", "run", "./images", "-arch", runtime.GOARCH, dir)
	command.Dir = "../../dist"
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("images: %v\n%s", err, out)
	}
	return filepath.Join(dir, "niclane-agent-"+runtime.GOARCH+".tar")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits until holds returns true. It fails the test if that takes longer than limit.
func until(t testing.TB, limit time.Duration, what string, holds func() (bool, string)) {
	t.Helper()
	var last string
	for deadline := time.After(limit); ; {
		ok, how := holds()
		if ok {
			return
		}
		last = how
		select {
		case <-deadline:
			t.Fatalf("not in %v: %s: %s", limit, what, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// install installs niclane on a cluster as docs/how-to/kubernetes-install.md says, and applies the
// policy. It waits until the lanes exist.
func (s *suite) install(t testing.TB) {
	s.installAgent(t)
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
	s.condition(t, "Healthy", "True", "")
	s.policyCondition(t, "test", "Ready", "True", "is applied on 1 of 1 node")
	s.untilAllocatable(t, "redis", 2)
	s.untilAllocatable(t, "web", 120)
}

// installAgent installs niclane as install does, but without a policy.
func (s *suite) installAgent(t testing.TB) {
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), cluster.Node, metav1.GetOptions{})
	must(t, err)
	info := node.Status.NodeInfo
	t.Logf("kubelet %s, %s", info.KubeletVersion, info.ContainerRuntimeVersion)
	release := "containerd://1.6."
	if s.Containerd != nil {
		release = "containerd://2."
	}
	if !strings.HasPrefix(info.KubeletVersion, s.Name+".") ||
		!strings.HasPrefix(info.ContainerRuntimeVersion, release) {
		t.Errorf("kubelet %s, runtime %s: want %s and %s", info.KubeletVersion, info.ContainerRuntimeVersion, s.Name,
			release)
	}
	must(t, s.Import(s.image))
	s.typed(t, "kubectl apply --server-side -f k8s/dist/manifests/niclane.yaml")
	s.agentPod(t)
	s.untilChained(t)
}

// pod returns the YAML text of a pod with a server on port 7. resources and annotations are YAML.
func pod(name, resources, annotations string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  containers:
  - name: app
    image: %s
    imagePullPolicy: Never
    args: [serve, ":7"]
    ports: [{containerPort: 7}]
    resources: {%s}
`, name, annotations, cluster.Image, resources)
}

func limits(class string) string { return `limits: {niclane.dev/` + class + `: 1}` }

// remove deletes the objects of a YAML text at the end of the test t.
func (s *suite) remove(t testing.TB, text string) {
	t.Cleanup(func() {
		if err := s.Delete(text); err != nil {
			t.Error(err)
		}
	})
}

// running creates the pod of a YAML text, waits until the pod runs, and returns it.
func (s *suite) running(t testing.TB, text, name string) *corev1.Pod {
	t.Helper()
	must(t, s.Apply(text))
	return s.untilRunning(t, name)
}

func (s *suite) untilRunning(t testing.TB, name string) (found *corev1.Pod) {
	t.Helper()
	until(t, time.Minute, name+" is running", func() (bool, string) {
		p, err := s.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		found = p
		return ready(p), s.describe(t.Context(), p)
	})
	return found
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describe returns a text with the state of a pod and the events about it.
func (s *suite) describe(ctx context.Context, p *corev1.Pod) string {
	text := []string{string(p.Status.Phase), p.Status.Reason, p.Status.Message}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			text = append(text, c.Message)
		}
	}
	events, err := s.Client.CoreV1().Events(p.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	if err == nil {
		for _, e := range events.Items {
			text = append(text, e.Reason+": "+e.Message)
		}
	}
	return strings.Join(text, "; ")
}

// stuck waits until the state of a pod, or an event about it, contains the text why. It fails the
// test if the pod runs.
func (s *suite) stuck(t testing.TB, name, why string) {
	t.Helper()
	until(t, time.Minute, name+" says "+why, func() (bool, string) {
		p, err := s.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if ready(p) {
			t.Fatalf("%s runs", name)
		}
		how := s.describe(t.Context(), p)
		return strings.Contains(how, why), how
	})
}

// echo sends data from outside the cluster to port 7 of each address of a pod, and checks that the
// same data comes back.
func (s *suite) echo(t testing.TB, p *corev1.Pod, bytes int) {
	t.Helper()
	s.echoAt(t, p, "7", bytes)
}

func (s *suite) echoAt(t testing.TB, p *corev1.Pod, port string, bytes int) {
	t.Helper()
	s.echoFrom(t, s.Control, p, port, bytes)
}

func (s *suite) echoFrom(t testing.TB, from *machine.Machine, p *corev1.Pod, port string, bytes int) {
	t.Helper()
	for _, ip := range p.Status.PodIPs {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		conn, err := from.Dial(ctx, "tcp", net.JoinHostPort(ip.IP, port))
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		conn.SetDeadline(deadline)
		go conn.Write(make([]byte, bytes))
		if _, err := io.ReadFull(conn, make([]byte, bytes)); err != nil {
			t.Errorf("%s at %s: %v", p.Name, ip.IP, err)
		}
	}
}

// metric reads the agent's metrics. It returns the sum of the values of all lines that contain all
// given texts.
func (s *suite) metric(t testing.TB, contains ...string) (sum float64, found bool) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.Node.Path("/run/niclane/agent.sock"))
		},
	}}
	answer, err := client.Get("http://agent/metrics")
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		all := true
		for _, c := range contains {
			all = all && strings.Contains(line, c)
		}
		if !all {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			t.Fatal(line)
		}
		sum, found = sum+value, true
	}
	return sum, found
}

// allocatable returns how many units of a class the node offers as an extended resource.
func (s *suite) allocatable(t testing.TB, class string) int64 {
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), cluster.Node, metav1.GetOptions{})
	must(t, err)
	q := node.Status.Allocatable[corev1.ResourceName("niclane.dev/"+class)]
	return q.Value()
}

func (s *suite) untilAllocatable(t testing.TB, class string, want int64) {
	t.Helper()
	until(t, time.Minute, fmt.Sprintf("%d of %s are allocatable", want, class), func() (bool, string) {
		got := s.allocatable(t, class)
		return got == want, fmt.Sprint(got)
	})
}

var (
	policies  = schema.GroupVersionResource{Group: "niclane.dev", Version: "v1alpha1", Resource: "lanepolicies"}
	laneNodes = schema.GroupVersionResource{Group: "niclane.dev", Version: "v1alpha1", Resource: "lanenodes"}
)

// condition waits until the node's LaneNode has a condition, for the present generation of the
// policy.
func (s *suite) condition(t testing.TB, kind, status, message string) {
	t.Helper()
	until(t, time.Minute, kind+" is "+status+": "+message, func() (bool, string) {
		p, err := s.Dynamic.Resource(policies).Get(t.Context(), "test", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		n, err := s.Dynamic.Resource(laneNodes).Get(t.Context(), cluster.Node, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		observed, _, _ := unstructured.NestedInt64(n.Object, "status", "policyGeneration")
		if name, _, _ := unstructured.NestedString(n.Object, "status", "policy"); name != "test" ||
			observed != p.GetGeneration() {
			return false, fmt.Sprintf("policy %s, generation %d of %d: %v", name, observed, p.GetGeneration(),
				p.Object["status"])
		}
		return holds(n, kind, status, message)
	})
}

// policyCondition waits until a policy has a condition, for its present generation.
func (s *suite) policyCondition(t testing.TB, policy, kind, status, message string) {
	t.Helper()
	until(t, time.Minute, policy+": "+kind+" is "+status+": "+message, func() (bool, string) {
		p, err := s.Dynamic.Resource(policies).Get(t.Context(), policy, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if observed, _, _ := unstructured.NestedInt64(p.Object, "status",
			"observedGeneration"); observed != p.GetGeneration() {
			return false, "an older generation"
		}
		return holds(p, kind, status, message)
	})
}

// holds reports whether an object has a condition, and how it is.
func holds(u *unstructured.Unstructured, kind, status, message string) (bool, string) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition := c.(map[string]any)
		if condition["type"] == kind {
			text := fmt.Sprint(condition["status"], " ", condition["reason"], " ", condition["message"])
			return condition["status"] == status && strings.Contains(text, message), text
		}
	}
	return false, fmt.Sprint(u.Object["status"])
}

// agentPod waits until the agent's pod is ready, and returns it.
func (s *suite) agentPod(t testing.TB) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	until(t, 2*time.Minute, "the agent is ready", func() (bool, string) {
		list, err := s.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: agentLabel})
		if err != nil || len(list.Items) != 1 {
			return false, fmt.Sprint(len(list.Items), " pods ", err)
		}
		found = &list.Items[0]
		return ready(found), s.describe(t.Context(), found) + "\n" + s.agentLog(t)
	})
	return found
}

// agentLog returns the last lines of the agent's log.
func (s *suite) agentLog(t testing.TB) string {
	files, _ := filepath.Glob(s.Node.OnDisk("var/log/pods/" + namespace + "_*/*/*.log"))
	var out strings.Builder
	for _, f := range files {
		text, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&out, "%s:\n%s\n", f, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return out.String()
}

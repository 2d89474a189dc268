// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// TestPublished builds a release, pushes it to a registry, and installs it from there on a cluster
// of three nodes, by the five commands and with the policy and pod of docs/how-to/kubernetes-install.md.
// One of the nodes is like those of kind.
func TestPublished(t *testing.T) {
	if only := os.Getenv("NICLANE_TEST_K8S"); only != "1" && only != cluster.Releases[0].Name {
		t.Skip("make test-k8s runs whole clusters: it takes minutes")
	}
	program := filepath.Join(t.TempDir(), "release")
	dist(t, "go", "build", "-o", program, "./release")
	s := &suite{Cluster: cluster.Start(t, cluster.Releases[0], cluster.Shape{}, cluster.Shape{}, cluster.Kind),
		dir: t.TempDir()}
	var pulls pulls
	registry, err := s.Registry(pulls.see)
	must(t, err)
	registry += "/niclane"
	release := filepath.Join(t.TempDir(), "release")
	dist(t, program, "-version", "v1.2.3", "-registry", registry, release)
	out, err := s.Shell("../../dist", program+" -push "+release)
	must(t, err)
	t.Logf("pushed:\n%s", out)

	s.chart = "oci://" + registry + "/charts/niclane"
	first := manifest(t, "LanePolicy")
	for name, text := range map[string]string{
		"policy.yaml": first,
		"pod.yaml": strings.Replace(manifest(t, "Pod"), "image: nginx\n",
			"image: "+cluster.Image+"\n    imagePullPolicy: Never\n    args: [serve, \":80\"]\n", 1),
	} {
		must(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
	}
	begin := time.Now()
	s.typed(t, "helm install niclane ")
	s.typed(t, "kubectl apply -f policy.yaml")
	s.typed(t, "kubectl wait lanepolicy/first ")
	s.typed(t, "kubectl apply -f pod.yaml")
	s.typed(t, "kubectl wait pod/first ")
	t.Logf("a pod with a lane %.0f s after the first command", time.Since(begin).Seconds())

	s.policyCondition(t, "first", "Ready", "True", "is applied on 3 of 3 nodes")
	pulls.check(t, s)
	s.inLane(t, "first")
	for _, n := range s.Nodes {
		t.Run("pod with a lane on "+n.Name, func(t *testing.T) { s.on(n).placed(t, n) })
	}
	must(t, s.Delete(pod("first", "", "")+"---\n"+first))
	must(t, s.Apply(strings.Replace(policy, "force: {", "force: {classifier: cgroup-sockops, ", 1)))
	s.policyCondition(t, "test", "Ready", "True", "is applied on 3 of 3 nodes")
	for _, n := range s.Nodes {
		t.Run("pod by control group on "+n.Name, func(t *testing.T) { s.on(n).placedByCgroup(t, n) })
	}
}

// manifest returns the first object of a kind in the pages about Kubernetes.
func manifest(t *testing.T, kind string) string {
	t.Helper()
	for block := range strings.SplitSeq(pages(t), "\n```") {
		if yaml, ok := strings.CutPrefix(block, "yaml\n"); ok && strings.Contains(yaml, "\nkind: "+kind+"\n") {
			return yaml + "\n"
		}
	}
	t.Fatalf("the pages about Kubernetes have no %s", kind)
	return ""
}

// inLane fails the test if no node's agent has the pod in the lane of the first policy.
func (s *suite) inLane(t *testing.T, name string) {
	t.Helper()
	for _, n := range s.Nodes {
		if _, found := s.on(n).metric(t, "niclane_pod_lane", `pod="`+name+`"`, `class="first"`); found {
			return
		}
	}
	t.Errorf("%s is in no lane", name)
}

// dist runs a command in the module of charts and images.
func dist(t *testing.T, args ...string) {
	t.Helper()
	command := exec.Command(args[0], args[1:]...)
	command.Dir = "../../dist"
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// on returns a suite whose node is another one of the cluster.
func (s *suite) on(n *cluster.Member) *suite {
	other, c := *s, *s.Cluster
	c.Node = n.Machine
	other.Cluster = &c
	return &other
}

// bind adds to the YAML text of a pod that it runs on a node.
func bind(text string, n *cluster.Member) string {
	return strings.Replace(text, "spec:\n", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+n.Name+"}\n", 1)
}

// placed tests a pod on one node, which is this suite's.
func (s *suite) placed(t *testing.T, n *cluster.Member) {
	name := "on-" + n.Name
	text := bind(pod(name, limits("first"), ""), n)
	s.remove(t, text)
	s.echo(t, s.running(t, text, name), 1<<16)
	if _, found := s.metric(t, "niclane_pod_lane", `pod="`+name+`"`, `class="first"`); !found {
		t.Errorf("%s is not in its lane:\n%s", name, s.agentLog(t))
	}
}

// placedByCgroup does the same with a pod of the host's network, which is recognised by its control
// group. The group is below the node's cgroupRoot.
func (s *suite) placedByCgroup(t *testing.T, n *cluster.Member) {
	name := "host-" + n.Name
	text := bind(hostPod(name, "7", limits("redis")), n)
	s.remove(t, text)
	p := s.running(t, text, name)
	until(t, time.Minute, "the pod is in its lane by its control group", func() (bool, string) {
		state := s.state(t)
		return strings.Contains(state, `"cgroup":"`+n.CgroupRoot+`/kubepods/`), state + s.agentLog(t)
	})
	const bytes = 1 << 20
	before := s.redisBytes(t)
	s.echo(t, p, bytes)
	if sent := s.redisBytes(t) - before; sent < bytes {
		t.Errorf("the lane has sent %.0f bytes, want at least the %d that the pod has", sent, bytes)
	}
}

// pulls has the requests for manifests that a registry got.
type pulls struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (p *pulls) see(r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return
	}
	from, _, _ := strings.Cut(r.RemoteAddr, ":")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[from+" "+r.URL.Path] = true
}

// check fails the test unless each node has pulled the image of its agent by the digest in the
// chart, and not by a tag.
func (p *pulls) check(t *testing.T, s *suite) {
	t.Helper()
	list, err := s.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: agentLabel})
	must(t, err)
	agents := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		agents[pod.Spec.NodeName] = pod
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range s.Nodes {
		pod, ok := agents[n.Name]
		if !ok {
			t.Errorf("%s has no agent", n.Name)
			continue
		}
		_, digest, ok := strings.Cut(pod.Spec.Containers[0].Image, "/niclane/niclane-agent@")
		if !ok {
			t.Errorf("%s: image %s, want one with a digest", n.Name, pod.Spec.Containers[0].Image)
		}
		const manifests = "/v2/niclane/niclane-agent/manifests/"
		if !p.seen[n.Inside+" "+manifests+digest] || p.seen[fmt.Sprint(n.Inside, " ", manifests, "1.2.3")] {
			t.Errorf("%s has not pulled %s: %v", n.Name, digest, p.seen)
		}
	}
}

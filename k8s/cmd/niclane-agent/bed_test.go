// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/pods/podresources/kubelettest"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// inLanes is the number of pods in lanes: the most that kubelet allows on a node by default.
const inLanes = 110

// An agentProcess is a running niclane-agent.
type agentProcess struct {
	Pid int
	// CNI is the socket for niclane-cni's requests.
	CNI string
	// Socket serves metrics.
	Socket string
}

// buildAgent builds niclane-agent with the same options as for the container image.
func buildAgent(b testing.TB, flags ...string) string {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	agent := filepath.Join(b.TempDir(), "niclane-agent")
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-o", agent}, flags...)
	build := exec.Command("go", append(args, ".")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return agent
}

// startAgent starts an agent with an uplink, a number of pods in one shared lane, and one pod
// without a lane. The API server and kubelet are minimal fakes.
func startAgent(b testing.TB, agent string, pods int, args ...string) agentProcess {
	b.Helper()
	s := httptest.NewUnstartedServer(newAPI(pods))
	s.EnableHTTP2 = true
	s.StartTLS()
	b.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return startAgentAt(b, s.URL, agent, pods, args...)
}

// startAgentAt does the same for an API server at an address.
func startAgentAt(b testing.TB, url, agent string, pods int, args ...string) agentProcess {
	b.Helper()
	for line := range strings.Lines(`link set lo up
		link add up0 numtxqueues 8 numrxqueues 8 type veth peer name up1 numtxqueues 8 numrxqueues 8
		link add cni0 type veth peer name cni1
		link set cni0 up
		link set cni1 up
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0
		addr add 10.244.0.1/24 dev cni0`) {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			b.Skipf("ip %s: %v: %s", line, err, out)
		}
	}
	b.Cleanup(func() {
		for _, link := range []string{"up0", "cni0"} {
			if out, err := exec.Command("ip", "link", "del", link).CombinedOutput(); err != nil {
				b.Errorf("ip link del %s: %v: %s", link, err, out)
			}
		}
	})
	dir := b.TempDir()
	memory, err := os.MkdirTemp("/dev/shm", "niclane-bench-") // on a tmpfs, as /run is
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(memory) })
	serveKubelet(b, filepath.Join(dir, "kubelet"), pods)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	socket, cni := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "cni.sock")
	args = append(args, "-node", "n1", "-kubeconfig", kubeconfig(b, dir, url), "-state-dir",
		filepath.Join(dir, "state"), "-run-dir", filepath.Join(memory, "run"),
		"-cni-socket", cni, "-kubelet-dir", filepath.Join(dir, "kubelet"), "-listen", "unix:"+socket)
	cmd := exec.Command(agent, args...)
	cmd.Env = append(os.Environ(), "GOGC=50", "GOMEMLIMIT=64MiB") // as in the DaemonSet
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); b.Failed() {
			b.Logf("%v %s", err, text)
		}
	})
	want := fmt.Sprintf(`niclane_class_units_used{class="web",mode="shared"} %d`, pods) + "\n"
	for deadline := time.Now().Add(time.Minute); !strings.Contains(scrape(socket),
		want); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("not all pods are in their lane: %s", scrape(socket))
		}
	}
	return agentProcess{cmd.Process.Pid, cni, socket}
}

// scrape returns the agent's metrics, "" if it does not answer.
func scrape(socket string) string {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
	r, err := c.Get("http://niclane/metrics")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body) // after an error the text is incomplete, and callers try again
	return string(text)
}

func serveKubelet(b testing.TB, dir string, pods int) {
	for _, d := range []string{"device-plugins", "pod-resources", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	k := &kubelettest.Kubelet{}
	for i := range pods {
		k.Pods = append(k.Pods, kubelettest.Pod(podName(i), "niclane.dev/web", fmt.Sprintf("web-%d", i)))
	}
	k.Serve(b, filepath.Join(dir, "pod-resources/kubelet.sock"))
}

func podName(i int) string { return fmt.Sprintf("web-7d4b9c6f5d-%05d", i) }

// aPod returns the pod number i, with all fields that a pod of a Deployment has.
func aPod(i int) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Namespace, p.Name, p.UID = "default", podName(i), types.UID(fmt.Sprintf("1e0e2a68-1d5e-4f6c-8d3e-%012d", i))
	p.ResourceVersion, p.Labels = "1",
		map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9c6f5d"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{` + strings.Repeat(`"f:conditions":{},`, 100) +
			`"f:phase":{}}}`)}}
	p.Spec.NodeName, p.Spec.ServiceAccountName = "n1", "default"
	p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access",
		VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	c := corev1.Container{Name: "c", Image: "registry.example/web:1",
		Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}
	for j := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", j), Value: strings.Repeat("value ", 10)})
	}
	c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi"),
		"niclane.dev/web": resource.MustParse("1")}
	c.Resources.Requests = c.Resources.Limits
	p.Spec.Containers = []corev1.Container{c}
	p.Status.Phase, p.Status.QOSClass = corev1.PodRunning, corev1.PodQOSGuaranteed
	p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprint("10.244.0.", i+5)}}
	p.Status.PodIP = p.Status.PodIPs[0].IP
	for _, t := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready",
		"ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: "True"})
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, Image: c.Image,
		ContainerID: "containerd://" + strings.Repeat("0", 64)}}
	return p
}

// plainPod returns a pod without a lane.
func plainPod() *corev1.Pod {
	p := aPod(inLanes)
	delete(p.Spec.Containers[0].Resources.Limits, "niclane.dev/web")
	return p
}

// An api is a fake API server. Its objects do not change; only ResourceSlices can be created.
type api struct {
	mu       sync.Mutex
	lists    map[string]*list // by path
	watchers []chan struct{}
	version  int
}

type list struct {
	apiVersion, kind string
	items            []any
}

// newAPI returns the fake API server of a node with a number of pods.
func newAPI(pods int) *api {
	node := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "n1", "uid": "u-n1", "resourceVersion": "1"},
		"status":   map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.1"}}},
	}
	a := &api{version: 1, lists: map[string]*list{
		"/apis/niclane.dev/v1alpha1/lanenodes":    {"niclane.dev/v1alpha1", "LaneNode", []any{laneNode(1)}},
		"/api/v1/nodes":                           {"v1", "Node", []any{node}},
		"/api/v1/pods":                            {"v1", "Pod", nil},
		"/apis/resource.k8s.io/v1/resourceslices": {"resource.k8s.io/v1", "ResourceSlice", nil},
	}}
	for i := range pods {
		a.lists["/api/v1/pods"].items = append(a.lists["/api/v1/pods"].items, aPod(i))
	}
	a.lists["/api/v1/pods"].items = append(a.lists["/api/v1/pods"].items, plainPod())
	return a
}

// laneNode returns the node's LaneNode with a generation of its policy: class redis has a guarantee
// of as many percent and nine more.
func laneNode(generation int) map[string]any {
	return map[string]any{
		"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneNode",
		"metadata": map[string]any{"name": "n1", "uid": "u-l", "resourceVersion": "1"},
		"spec": map[string]any{
			"policy": "p", "policyGeneration": generation,
			"uplink": map[string]any{"dev": "up0", "linkRate": "1G", "force": map[string]any{"queue-set": "shared"}},
			"classes": []any{
				map[string]any{"name": "redis", "offeredAs": "Resource", "queues": 1, "capacity": 2,
					"guarantee": fmt.Sprint(9+generation, "%")},
				map[string]any{"name": "web", "mode": "Shared", "offeredAs": "Resource", "queues": 1,
					"capacity": inLanes},
				map[string]any{"name": "claimed", "offeredAs": "Claim", "queues": 1, "capacity": 2},
			},
		},
	}
}

// kubeconfig writes a kubeconfig for an API server, and returns its path.
func kubeconfig(b testing.TB, dir, url string) string {
	path := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "c", "user": {"token": "t"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	l := a.lists[r.URL.Path]
	a.mu.Unlock()
	switch {
	case r.Method == http.MethodGet && l != nil && r.URL.Query().Get("watch") != "":
		a.watch(w, r, l)
	case r.Method == http.MethodGet && l != nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": l.apiVersion, "kind": l.kind + "List",
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": l.items})
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/n1":
		_ = json.NewEncoder(w).Encode(a.lists["/api/v1/nodes"].items[0])
	case r.Method == http.MethodPost && l != nil:
		var o map[string]any
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.add(l, o)
		a.mu.Lock()
		defer a.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(o)
	default: // the agent writes a status or an event: send it back
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(bytes.TrimSpace(text))
	}
}

// add adds an object to a list, or a new version of one that is there.
func (a *api) add(l *list, o map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	o["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(a.version)
	l.items = append(l.items, o)
	for _, c := range a.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// versionOf returns the version of an object that add has added, 1 for the others.
func versionOf(o any) int {
	m, _ := o.(map[string]any)
	text, _, _ := unstructured.NestedString(m, "metadata", "resourceVersion")
	version, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return version
}

// watch answers a watch request: it sends all objects if the client wants them, and later each
// object that is created.
func (a *api) watch(w http.ResponseWriter, r *http.Request, l *list) {
	made := make(chan struct{}, 1)
	a.mu.Lock()
	a.watchers = append(a.watchers, made)
	a.mu.Unlock()
	told := 0
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
		a.mu.Lock()
		for told < len(l.items) && versionOf(l.items[told]) <= from {
			told++
		}
		a.mu.Unlock()
	}
	event := func(typ string, o any) { _ = json.NewEncoder(w).Encode(map[string]any{"type": typ, "object": o}) }
	for first := true; ; first = false {
		a.mu.Lock()
		for ; told < len(l.items); told++ {
			event("ADDED", l.items[told])
		}
		version := a.version
		a.mu.Unlock()
		if first {
			event("BOOKMARK", map[string]any{"apiVersion": l.apiVersion, "kind": l.kind,
				"metadata": map[string]any{"resourceVersion": fmt.Sprint(version),
					"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}})
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-made:
		}
	}
}

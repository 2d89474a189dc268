// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/niclane/niclane/internal/vethtest"
)

// TestMain runs the benchmark in a network namespace of its own.
func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

var restWindow = flag.Duration("rest", 30*time.Second, "how long the agent at rest is looked at")

// inLanes is how many pods are in lanes while the agent rests: what a node has at most.
const inLanes = 110

// BenchmarkRest is the agent, built as for the image, with all pods of a full node in a
// shared lane and nothing to do: what of it is resident, and what of a processor it
// takes. The API server and kubelet are as much of these as it needs.
func BenchmarkRest(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
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
	dir := b.TempDir()
	agent := filepath.Join(dir, "niclane-agent")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", agent, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	serveKubelet(b, filepath.Join(dir, "kubelet"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	socket := filepath.Join(dir, "agent.sock")
	cmd := exec.Command(agent, "-node", "n1", "-kubeconfig", serveAPI(b, dir), "-state-dir", filepath.Join(dir, "state"), "-run-dir", filepath.Join(dir, "run"),
		"-cni-socket", filepath.Join(dir, "cni.sock"), "-kubelet-dir", filepath.Join(dir, "kubelet"), "-listen", "unix:"+socket)
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
	want := fmt.Sprintf(`niclane_class_units_used{class="web",mode="shared"} %d`, inLanes)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(metrics(socket), want); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("not all pods are in their lane: %s", metrics(socket))
		}
	}
	settle(b, cmd.Process.Pid)
	for b.Loop() {
		before := spent(b, cmd.Process.Pid)
		time.Sleep(*restWindow)
		b.ReportMetric((spent(b, cmd.Process.Pid)-before)/restWindow.Seconds()*100, "%CPU")
	}
	b.ReportMetric(0, "ns/op") // says nothing
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"VmRSS", "RssAnon", "RssFile"} {
		kb, err := strconv.ParseFloat(regexp.MustCompile(name + `:\s*(\d+) kB`).FindStringSubmatch(string(status))[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(kb/1024, name+"-MiB")
	}
}

// settle waits until what the last pods have woken is done: until the agent takes
// less than a hundredth of a processor in each of three seconds on end.
func settle(b *testing.B, pid int) {
	last, quiet := spent(b, pid), 0
	for deadline := time.Now().Add(time.Minute); quiet < 3; {
		if time.Now().After(deadline) {
			b.Fatalf("the agent does not come to rest: it took more than a hundredth of a processor within the last 3 s, %.2f s since its start", last)
		}
		time.Sleep(time.Second)
		now := spent(b, pid)
		if quiet++; now-last > 0.01 {
			quiet = 0
		}
		last = now
	}
}

// spent is the processor time of a process's threads, s.
func spent(b *testing.B, pid int) (sum float64) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		b.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue // a thread that has ended
		}
		var ns float64
		if _, serr := fmt.Sscan(string(text), &ns); err != nil || serr != nil {
			b.Fatal(err, serr)
		}
		sum += ns / 1e9
	}
	return sum
}

// metrics are what the agent shows, "" as long as it shows nothing.
func metrics(socket string) string {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := c.Get("http://niclane/metrics")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body) // what is missing is asked for again
	return string(text)
}

// kubelet says what the pods have.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	out := &podresources.ListPodResourcesResponse{}
	for i := range inLanes {
		out.PodResources = append(out.PodResources, &podresources.PodResources{Namespace: "default", Name: podName(i), Containers: []*podresources.ContainerResources{{
			Name: "server", Devices: []*podresources.ContainerDevices{{ResourceName: "niclane.dev/web", DeviceIds: []string{fmt.Sprintf("web-%d", i)}}},
		}}})
	}
	return out, nil
}

func serveKubelet(b *testing.B, dir string) {
	for _, d := range []string{"device-plugins", "pod-resources", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "pod-resources/kubelet.sock"))
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, kubelet{})
	go func() { _ = s.Serve(l) }()
	b.Cleanup(s.Stop)
}

func podName(i int) string { return fmt.Sprintf("web-7d4b9c6f5d-%05d", i) }

// aPod is one as a Deployment makes it.
func aPod(i int) *corev1.Pod {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Namespace, p.Name, p.UID = "default", podName(i), types.UID(fmt.Sprintf("1e0e2a68-1d5e-4f6c-8d3e-%012d", i))
	p.ResourceVersion, p.Labels = "1", map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9c6f5d"}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{` + strings.Repeat(`"f:conditions":{},`, 100) + `"f:phase":{}}}`)}}}
	p.Spec.NodeName, p.Spec.ServiceAccountName = "n1", "default"
	p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	c := corev1.Container{Name: "server", Image: "registry.example/web:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}
	for j := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", j), Value: strings.Repeat("value ", 10)})
	}
	c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi"), "niclane.dev/web": resource.MustParse("1")}
	c.Resources.Requests = c.Resources.Limits
	p.Spec.Containers = []corev1.Container{c}
	p.Status.Phase, p.Status.QOSClass = corev1.PodRunning, corev1.PodQOSGuaranteed
	p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprint("10.244.0.", i+5)}}
	p.Status.PodIP = p.Status.PodIPs[0].IP
	for _, t := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: "True"})
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", Image: c.Image, ContainerID: "containerd://" + strings.Repeat("0", 64)}}
	return p
}

// An api is an API server in which nothing happens but that ResourceSlices are made.
type api struct {
	mu       sync.Mutex
	lists    map[string]*list // by path
	watchers []chan struct{}
}

type list struct {
	apiVersion, kind string
	items            []any
}

// serveAPI returns a kubeconfig.
func serveAPI(b *testing.B, dir string) string {
	node := map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "uid": "u-n1", "resourceVersion": "1"},
		"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.1"}}},
	}
	policy := map[string]any{
		"apiVersion": "niclane.dev/v1alpha1", "kind": "LanePolicy", "metadata": map[string]any{"name": "p", "uid": "u-p", "resourceVersion": "1", "generation": 1},
		"spec": map[string]any{
			"uplink": map[string]any{"dev": "up0", "linkRate": "1gbit", "force": map[string]any{"queue-set": "shared"}},
			"classes": []any{
				map[string]any{"name": "redis", "queues": 1, "sets": 2, "guarantee": "10%"},
				map[string]any{"name": "web", "mode": "shared", "queues": 1, "members": inLanes},
				map[string]any{"name": "claimed", "offeredAs": "claim", "queues": 1, "sets": 2},
			},
		},
	}
	a := &api{lists: map[string]*list{
		"/apis/niclane.dev/v1alpha1/lanepolicies": {"niclane.dev/v1alpha1", "LanePolicy", []any{policy}},
		"/api/v1/nodes": {"v1", "Node", []any{node}},
		"/api/v1/pods":  {"v1", "Pod", nil},
		"/apis/resource.k8s.io/v1/resourceslices": {"resource.k8s.io/v1", "ResourceSlice", nil},
	}}
	for i := range inLanes {
		a.lists["/api/v1/pods"].items = append(a.lists["/api/v1/pods"].items, aPod(i))
	}
	s := httptest.NewUnstartedServer(a)
	s.EnableHTTP2 = true
	s.StartTLS()
	b.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	path := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "c", "user": {"token": "t"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, s.URL)
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
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": l.apiVersion, "kind": l.kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": l.items})
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/n1":
		_ = json.NewEncoder(w).Encode(a.lists["/api/v1/nodes"].items[0])
	case r.Method == http.MethodPost && l != nil:
		var o map[string]any
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		o["metadata"].(map[string]any)["resourceVersion"] = "2"
		l.items = append(l.items, o)
		for _, c := range a.watchers {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(o)
	default: // statuses and events
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(bytes.TrimSpace(text))
	}
}

// watch tells of all objects, and of those that are made later.
func (a *api) watch(w http.ResponseWriter, r *http.Request, l *list) {
	made := make(chan struct{}, 1)
	a.mu.Lock()
	a.watchers = append(a.watchers, made)
	a.mu.Unlock()
	told := 0
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		told = len(l.items)
	}
	event := func(typ string, o any) { _ = json.NewEncoder(w).Encode(map[string]any{"type": typ, "object": o}) }
	for first := true; ; first = false {
		a.mu.Lock()
		for ; told < len(l.items); told++ {
			event("ADDED", l.items[told])
		}
		a.mu.Unlock()
		if first {
			event("BOOKMARK", map[string]any{"apiVersion": l.apiVersion, "kind": l.kind, "metadata": map[string]any{"resourceVersion": "1", "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}})
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-made:
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/pods/podresources/kubelettest"
	"github.com/niclane/niclane/watch/metrics"
)

// sandbox returns the sandbox of a pod as the runtime reports it by NRI.
func sandbox(name, addr string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "sb-" + name, Name: name, Uid: "u-" + name, Namespace: "default", Ips: []string{addr},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: "/run/netns/" + name}}},
	}
}

// exists creates a pod in the API server. The pod asks for a lane.
func (w *world) exists(t *testing.T, name, addr string, phase corev1.PodPhase, host bool) {
	t.Helper()
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Namespace, p.Name, p.UID = "default", name, types.UID("u-"+name)
	p.Spec.HostNetwork, p.Spec.NodeName = host, "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"niclane.dev/redis": resource.MustParse("1")}}}}
	p.Status.Phase, p.Status.PodIPs = phase, []corev1.PodIP{{IP: addr}}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if _, err := w.Resource(pods).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: m},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// events returns the events about a pod, as texts that begin with the event's reason.
func (w *world) events(t *testing.T, pod string) (said []string) {
	t.Helper()
	all, err := w.Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "events"}).Namespace("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Items {
		if about, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name"); about == pod {
			said = append(said, fmt.Sprint(e.Object["reason"], ": ", e.Object["message"]))
		}
	}
	return said
}

// TestStartedWithoutTheAgent tests pods whose sandboxes the runtime makes while the agent is down,
// so that NRI does not report them. The agent later finds those that kubelet has admitted. If such
// a pod runs, the agent puts it into its lane, or sends an event that says why not. If it has no
// container yet, the agent puts it into its lane before the first container is created.
func TestStartedWithoutTheAgent(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.IP(t, `link set lo up
		link add up0 numtxqueues 8 numrxqueues 8 type veth peer name up1 numtxqueues 8 numrxqueues 8
		link set up0 up
		link set up1 up
		addr add 192.0.2.1/24 dev up0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0") })
	dir := t.TempDir()
	for _, d := range []string{"kubelet/device-plugins", "kubelet/pod-resources", "none"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kubelet := &kubelettest.Kubelet{Pods: []*podresourcesv1.PodResources{
		kubelettest.Pod("runs", "niclane.dev/redis", "redis-0"),
		kubelettest.Pod("starts", "niclane.dev/redis", "redis-1"),
		kubelettest.Pod("portless", "niclane.dev/redis", "redis-2"),
	}}
	kubelet.Serve(t, filepath.Join(dir, "kubelet/pod-resources/kubelet.sock"))
	w := newWorld(t)
	w.before(t)
	w.set(t, 1, class("redis", 1, "capacity", int64(3)))
	w.exists(t, "runs", "10.244.0.5", corev1.PodRunning, false)
	w.exists(t, "starts", "10.244.0.6", corev1.PodPending, false)
	w.exists(t, "portless", "192.0.2.1", corev1.PodRunning, true)

	socket, none := filepath.Join(dir, "nri.sock"), filepath.Join(dir, "none")
	sync := func(ctx context.Context, f adaptation.SyncCB) error {
		_, err := f(ctx, []*api.PodSandbox{sandbox("runs", "10.244.0.5"), sandbox("starts", "10.244.0.6")}, nil)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	r, err := adaptation.New("test", "v2.3.7", sync, update,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)

	a, err := New(Options{
		Node: "n1", Client: w.fake, StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		Socket: filepath.Join(dir, "cni.sock"), NRI: socket,
		KubeletDir: filepath.Join(dir, "kubelet"),
		Listen:     metrics.Address{Network: "unix", Address: filepath.Join(dir, "agent.sock")},
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	attached := func() (out []string) {
		for _, at := range a.lanes.Attachments() {
			out = append(out, at.Pod+" as "+at.Sandbox)
		}
		return out
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not in 20 s: %s; in lanes: %q", what, attached())
			}
		}
	}
	eventually("a pod that runs gets into its lane", func() bool {
		return slices.Contains(attached(), "runs as pod:u-runs")
	})
	eventually("it is said on a pod why it does not", func() bool {
		return slices.ContainsFunc(w.events(t, "portless"), func(s string) bool {
			return strings.HasPrefix(s, "LaneFailed: ") && strings.Contains(s, "names no port")
		})
	})
	eventually("a pod gets into its lane before its container is made", func() bool {
		// This request reaches the agent only when it is connected, so it is repeated.
		_, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox("starts", "10.244.0.6"),
			Container: &api.Container{Id: "c", PodSandboxId: "sb-starts", Name: "c"}})
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(attached(), "starts as sb-starts")
	})
	if got := attached(); len(got) != 2 {
		t.Errorf("in lanes: %q", got)
	}
}

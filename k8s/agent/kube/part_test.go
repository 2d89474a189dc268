// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kept returns the part of an object that the agent keeps. It converts the object first to the form
// in which the API server sends it.
func kept(t *testing.T, of schema.GroupVersionResource, o runtime.Object) any {
	t.Helper()
	out, err := part(of, object(t, o).(*unstructured.Unstructured))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPart checks which fields of pods, nodes and Services the agent keeps: those that lanes need,
// and no others.
func TestPart(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion, pod.Labels = "default", "p", "u", "7",
		map[string]string{"app": "redis"}
	pod.Annotations = map[string]string{"niclane.dev/lanes": "{}"}
	pod.Spec.HostNetwork = true
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "lane"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c",
		Ports: []corev1.ContainerPort{{Name: "redis", ContainerPort: 6379, Protocol: "TCP"}}}}
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"niclane.dev/redis": resource.MustParse("1")}
	pod.Status.Phase, pod.Status.QOSClass, pod.Status.PodIPs = corev1.PodRunning, corev1.PodQOSBurstable,
		[]corev1.PodIP{{IP: "10.0.0.1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://1"}}
	pod.Spec.InitContainers, pod.Status.InitContainerStatuses = slices.Clone(pod.Spec.Containers),
		pod.Status.ContainerStatuses
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[0].RestartPolicy = &always
	whole := pod.DeepCopy()
	whole.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	whole.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	whole.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "B"}}
	whole.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2")
	whole.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}}
	whole.Status.ContainerStatuses[0].ImageID = "sha256:1"
	if diff := cmp.Diff(any(pod), kept(t, podsGVR, whole)); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}

	node := &corev1.Node{}
	node.Name, node.Labels = "n1", map[string]string{"role": "edge"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.3.7"
	wholeNode := node.DeepCopy()
	wholeNode.Annotations = map[string]string{"a": "b"}
	wholeNode.Status.Images = []corev1.ContainerImage{{Names: []string{"pause"}}}
	if diff := cmp.Diff(any(node), kept(t, nodes, wholeNode)); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}

	service := &corev1.Service{}
	service.Namespace, service.Name = "default", "s"
	service.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: pod.Labels, ExternalIPs: []string{"203.0.113.7"},
		Ports: []corev1.ServicePort{{Port: 6379, NodePort: 30379, TargetPort: intstr.FromString("redis")}},
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.8"}}
	wholeService := service.DeepCopy()
	wholeService.Spec.ClusterIPs = []string{"10.96.0.1"}
	if diff := cmp.Diff(any(service), kept(t, services, wholeService)); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
}

// TestSame checks that status writes of kubelet and of the agent itself do not cause a look at
// all pods.
func TestSame(t *testing.T) {
	node := func(change func(*corev1.Node)) any {
		n := &corev1.Node{}
		n.ResourceVersion, n.Labels = "1", map[string]string{"role": "edge"}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
		change(n)
		return kept(t, nodes, n)
	}
	pod := func(change func(*corev1.Pod)) any {
		p := &corev1.Pod{}
		p.ResourceVersion, p.UID = "1", "u"
		p.Status.Phase = corev1.PodPending
		change(p)
		return kept(t, podsGVR, p)
	}
	lanes := func(change func(*unstructured.Unstructured)) any {
		u := nodesLanes("n1", map[string]any{"policy": "p"})
		change(u)
		out, err := part(laneNodes, u)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	was, pending, p := node(func(*corev1.Node) {}), pod(func(*corev1.Pod) {}),
		lanes(func(*unstructured.Unstructured) {})
	for _, test := range []struct {
		name          string
		before, after any
		same          bool
	}{
		{"heartbeat", was, node(func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}), true},
		{"label", was, node(func(n *corev1.Node) { n.Labels["role"] = "core" }), false},
		{"address", was, node(func(n *corev1.Node) { n.Status.Addresses[0].Address = "192.0.2.2" }), false},
		{"probe", pending, pod(func(p *corev1.Pod) {
			p.ResourceVersion, p.Status.Conditions = "2", []corev1.PodCondition{{Type: corev1.PodReady}}
		}), true},
		{"phase", pending, pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		{"another of the name", pending, pod(func(p *corev1.Pod) { p.UID = "u2" }), false},
		{"annotation", pending, pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"niclane.dev/lanes": "{}"}
		}), false},
		{"the agent's own status", p, lanes(func(u *unstructured.Unstructured) {
			u.SetResourceVersion("2")
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager}})
			u.Object["status"] = map[string]any{"policy": "p"}
		}), true},
		{"spec", p, lanes(func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"policy": "q"}
		}), false},
		{"made anew", p, lanes(func(u *unstructured.Unstructured) { u.SetUID("other") }), false},
		{"a part and nothing", p, nil, false},
	} {
		if got := same(test.before, test.after); got != test.same {
			t.Errorf("%s: %v, want %v", test.name, got, test.same)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// part returns the fields of an object that the agent reads: a tenth of a pod, and the whole
// LaneNode. Other fields are not kept.
func part(of schema.GroupVersionResource, u *unstructured.Unstructured) (any, error) {
	switch of {
	case nodes:
		return typed(u, nodePart)
	case podsGVR:
		return typed(u, podPart)
	case services:
		return typed(u, servicePart)
	}
	return u, nil
}

// typed converts an object to its Go type, and returns the result of part for it.
func typed[T any](u *unstructured.Unstructured, part func(*T) *T) (any, error) {
	whole := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, whole); err != nil {
		return nil, err
	}
	return part(whole), nil
}

// metaPart returns the labels and the metadata that an informer needs.
func metaPart(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Labels: m.Labels}
}

func nodePart(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metaPart(&n.ObjectMeta)}
	out.Status.Addresses = n.Status.Addresses
	out.Status.NodeInfo.ContainerRuntimeVersion = n.Status.NodeInfo.ContainerRuntimeVersion
	return out
}

func podPart(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metaPart(&p.ObjectMeta)}
	for k, v := range p.Annotations {
		if k != lastApplied { // this annotation has a copy of the whole pod
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, k, v)
		}
	}
	out.Spec.HostNetwork, out.Spec.ResourceClaims = p.Spec.HostNetwork, p.Spec.ResourceClaims
	out.Spec.InitContainers, out.Spec.Containers = containerParts(p.Spec.InitContainers),
		containerParts(p.Spec.Containers)
	out.Status.Phase, out.Status.PodIPs, out.Status.QOSClass = p.Status.Phase, p.Status.PodIPs, p.Status.QOSClass
	out.Status.InitContainerStatuses, out.Status.ContainerStatuses = statusParts(p.Status.InitContainerStatuses),
		statusParts(p.Status.ContainerStatuses)
	return out
}

// lastApplied is the annotation in which kubectl apply stores the object that it applied.
const lastApplied = corev1.LastAppliedConfigAnnotation

// containerParts returns containers with only their names, ports, claims, extended resources, and
// whether they are sidecars.
func containerParts(all []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(all))
	for _, c := range all {
		out = append(out, corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
			Resources: corev1.ResourceRequirements{Limits: extended(c.Resources.Limits),
				Requests: extended(c.Resources.Requests), Claims: c.Resources.Claims}})
	}
	return out
}

// extended returns the extended resources of a list. Their names have a domain; those of
// Kubernetes' own resources have none.
func extended(list corev1.ResourceList) (out corev1.ResourceList) {
	for name, quantity := range list {
		if strings.Contains(string(name), "/") {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = quantity
		}
	}
	return out
}

// statusParts returns statuses with only the containers' names and IDs.
func statusParts(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(all))
	for _, s := range all {
		out = append(out, corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID})
	}
	return out
}

func servicePart(s *corev1.Service) *corev1.Service {
	out := &corev1.Service{ObjectMeta: metaPart(&s.ObjectMeta)}
	out.Spec.Selector, out.Spec.Type, out.Spec.Ports, out.Spec.ExternalIPs = s.Spec.Selector, s.Spec.Type,
		s.Spec.Ports, s.Spec.ExternalIPs
	out.Status.LoadBalancer = s.Status.LoadBalancer
	return out
}

// same reports whether two versions of an object are equal in the fields that the agent reads. This
// is often so: kubelet often writes the status of its node and pods, and each node writes the
// policy's status.
func same(before, after any) bool {
	b, ok1 := version(before)
	a, ok2 := version(after)
	return ok1 && ok2 && equality.Semantic.DeepEqual(b, a)
}

// version returns a copy of an object without its resource version, and of a LaneNode without
// its status.
func version(o any) (any, bool) {
	r, ok := o.(runtime.Object)
	if !ok {
		return nil, false
	}
	r = r.DeepCopyObject()
	m, err := meta.Accessor(r)
	if err != nil {
		return nil, false
	}
	m.SetResourceVersion("")
	if u, ok := r.(*unstructured.Unstructured); ok && u.GetKind() == v1alpha1.NodeKind {
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "status") // the agent's own
	}
	return r, true
}

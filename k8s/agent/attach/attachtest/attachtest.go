// SPDX-License-Identifier: Apache-2.0

// Package attachtest replaces kubelet and the API server in tests that attach pods on a real
// card.
package attachtest

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/pods/podresources"
)

// Given has the pods of namespace default and their units. It implements attach.Kubelet, and
// attach.Pods with an empty cache. It is not safe for concurrent use.
type Given struct {
	pods map[string]*corev1.Pod
	has  map[string]podresources.Devices
}

// NewGiven returns a Given without pods.
func NewGiven() *Given {
	return &Given{map[string]*corev1.Pod{}, map[string]podresources.Devices{}}
}

// Run adds a running pod whose container c declares a UDP port and has a unit of a class. It does
// not report the pod to the agent. The caller may change the returned pod.
func (g *Given) Run(name, class, unit string, port int32, addrs ...netip.Addr) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: port, Protocol: corev1.ProtocolUDP}},
	}}}}
	p.Namespace, p.Name, p.UID, p.Status.Phase = "default", name, types.UID("u-"+name), corev1.PodRunning
	for _, addr := range addrs {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	g.pods[name], g.has[name] = p, podresources.Devices{Resource: v1alpha1.Group + "/" + class, IDs: []string{unit}}
	return p
}

// Forget removes a pod.
func (g *Given) Forget(name string) {
	delete(g.pods, name)
	delete(g.has, name)
}

// Here returns the pods by NAMESPACE/NAME, for attach.Attacher.Sweep.
func (g *Given) Here() map[string]*corev1.Pod {
	here := map[string]*corev1.Pod{}
	for name, pod := range g.pods {
		here[pod.Namespace+"/"+name] = pod
	}
	return here
}

func (g *Given) resources(name string) podresources.Pod {
	return podresources.Pod{Namespace: "default", Name: name,
		Containers: []podresources.Container{{Name: "c", Devices: []podresources.Devices{g.has[name]}}}}
}

// Get implements attach.Kubelet.
func (g *Given) Get(_ context.Context, _, name string) (*podresources.Pod, error) {
	if _, has := g.has[name]; !has {
		return nil, nil
	}
	p := g.resources(name)
	return &p, nil
}

// List implements attach.Kubelet.
func (g *Given) List(context.Context) (out []podresources.Pod, err error) {
	for name := range g.has {
		out = append(out, g.resources(name))
	}
	return out, nil
}

// Known implements attach.Pods.
func (g *Given) Known(string, string, string) *corev1.Pod { return nil }

// Pod implements attach.Pods.
func (g *Given) Pod(_ context.Context, namespace, name, _ string) (*corev1.Pod, error) {
	if p := g.pods[name]; p != nil && p.Namespace == namespace {
		return p, nil
	}
	return nil, fmt.Errorf("pod %s/%s is not known", namespace, name)
}

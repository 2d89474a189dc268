// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/plan"
)

// tellings is the least time between two writes of the status. A node that starts 100 pods
// then writes its status a few times, not 100 times.
const tellings = time.Second

// tell keeps the node's entry in its policy's status current, and sends events.
func (a *Agent) tell(ctx context.Context) error {
	var told *v1alpha1.NodeStatus
	var in string
	var wait <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		case <-wait:
		}
		s, of := a.status(told)
		if in != "" && in != of {
			if err := a.cluster.SetStatus(ctx, in, nil); err != nil && ctx.Err() == nil {
				a.o.Log.Warn("status", "policy", in, "error", err)
			}
			told, in = nil, ""
			s, of = a.status(nil)
		}
		wait = nil
		if of != "" && !equal(told, s) {
			err := a.cluster.SetStatus(ctx, of, s)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				a.o.Log.Warn("status", "policy", of, "error", err)
				wait = time.After(10 * time.Second)
			default:
				a.events(ctx, told, s)
				told, in = s, of
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tellings):
		}
	}
}

// events sends an event for each condition that is false and was not before, or has another
// message.
func (a *Agent) events(ctx context.Context, was, is *v1alpha1.NodeStatus) {
	for _, c := range is.Conditions {
		if c.Status == metav1.ConditionTrue {
			continue
		}
		if was != nil && slices.ContainsFunc(was.Conditions, func(o metav1.Condition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.Message == c.Message
		}) {
			continue
		}
		a.cluster.Event(ctx, "Node", "", a.o.Node, a.o.Node, c.Reason, "lanes: "+c.Message)
	}
}

func equal(a, b *v1alpha1.NodeStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ObservedGeneration == b.ObservedGeneration && slices.Equal(a.Devices, b.Devices) &&
		slices.Equal(a.Classes, b.Classes) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Message == y.Message && x.Reason == y.Reason
		})
}

// status returns the node's entry and the policy that it belongs to, "" if none.
func (a *Agent) status(told *v1alpha1.NodeStatus) (*v1alpha1.NodeStatus, string) {
	st, snap := a.lanes.Status(), a.lanes.Now()
	if st.Policy == "" {
		return nil, ""
	}
	out := &v1alpha1.NodeStatus{Name: a.o.Node, ObservedGeneration: st.Generation, Devices: st.Devices}
	for _, c := range snap.Classes {
		cs := v1alpha1.ClassStatus{Name: c.Name, Total: len(c.Units), Mechanism: c.Mechanisms["queue-set"],
			Held: st.Held[c.Name]}
		for _, u := range c.Units {
			if u.Holder != nil {
				cs.InUse++
			}
			if u.Unhealthy != "" {
				cs.Unhealthy++
			}
		}
		out.Classes = append(out.Classes, cs)
	}
	var old []metav1.Condition
	if told != nil {
		old = told.Conditions
	}
	reason, message := "AsThePolicySays", "the node's card is as the policy says"
	switch {
	case st.Problem != "":
		reason, message = "Refused", st.Problem
	case !st.Applied:
		reason, message = "WaitsForPods", st.String()
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Applied, st.Applied, reason, message, st.Generation))
	reason, message = "LanesHold", "the lanes are as they were applied"
	if len(st.Unhealthy) > 0 {
		reason, message = "LanesDoNotHold", strings.Join(st.Unhealthy, "; ")
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Healthy, len(st.Unhealthy) == 0, reason, message, st.Generation))
	a.mu.Lock()
	bypassed := a.bypassed.String()
	a.mu.Unlock()
	reason, message = "AddressesAreSeen", "the agent found no packets of pods in lanes that the node translates"
	if bypassed != "" {
		reason, message = "AddressesAreTranslated", bypassed
	}
	out.Conditions = append(out.Conditions, kube.Condition(old, v1alpha1.Steered, bypassed == "", reason, message,
		st.Generation))
	return out, st.Policy
}

// cgroup returns the control group of a container in the host's network. It returns "" if the
// policy does not classify by control group; ports identify the packets then. The group is
// found by the container's ID in its name, because its path depends on kubelet and the
// runtime.
func (a *Agent) cgroup(pod *corev1.Pod, container string) string {
	if !a.byCgroup() {
		return ""
	}
	id := ""
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.Name == container {
			_, id, _ = strings.Cut(c.ContainerID, "://")
		}
	}
	if id == "" {
		return ""
	}
	mounts, err := cgroup.Find(nil)
	if err != nil {
		return ""
	}
	_, groups, err := cgroup.Search(mounts, func(base string) bool { return cgroup.NamesContainer(base, id) })
	if err != nil || len(groups) != 1 {
		return ""
	}
	return groups[0]
}

// byCgroup reports whether the policy makes lanes recognise packets by control group.
func (a *Agent) byCgroup() bool {
	force := ""
	for _, p := range a.appliedForce() {
		force = p
	}
	return force == plan.BySockops || force == plan.ByNetPrio
}

// appliedForce returns the classifier that the applied policy forces: none or one.
func (a *Agent) appliedForce() []string {
	all, err := a.cluster.Policies()
	if err != nil {
		return nil
	}
	name := a.lanes.Status().Policy
	for _, p := range all {
		if f := p.Spec.Uplink.Force["classifier"]; p.Name == name && f != "" {
			return []string{f}
		}
	}
	return nil
}

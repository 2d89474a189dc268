// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/plan"
)

// tellings is the shortest time between two writes of the status. If a node starts 100 pods, the
// agent writes the status a few times, not 100 times.
const tellings = time.Second

// tell keeps the status of the node's LaneNode current, and sends events.
func (a *Agent) tell(ctx context.Context) error {
	var told *v1alpha1.LaneNodeStatus
	renew := time.NewTimer(v1alpha1.Renewal)
	defer renew.Stop()
	for first := true; ; first = false {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case <-a.changed:
		case <-renew.C:
			due = true
		}
		if first || told == nil {
			told = a.cluster.Told() // by the agent before this one
		}
		if s := a.status(told); due || first || !a.cluster.Made() || !equal(told, s) {
			next := v1alpha1.Renewal
			if err := a.cluster.SetStatus(ctx, s); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				a.o.Log.Warn("status", "error", err)
				next = 10 * time.Second
			} else {
				a.events(ctx, told, s)
				told = s
			}
			renew.Reset(next)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tellings):
		}
	}
}

// events sends an event for each condition that has changed, or that is false with a new message,
// and for each generation of the policy that is applied.
func (a *Agent) events(ctx context.Context, was, is *v1alpha1.LaneNodeStatus) {
	if was == nil {
		was = &v1alpha1.LaneNodeStatus{}
	}
	for _, c := range is.Conditions {
		o := meta.FindStatusCondition(was.Conditions, c.Type)
		good, again := c.Status == metav1.ConditionTrue, o != nil && o.Status == c.Status
		message := c.Message
		switch {
		case c.Type == v1alpha1.Applied && good:
			if again && was.Policy == is.Policy && was.PolicyGeneration == is.PolicyGeneration || is.Policy == "" {
				continue
			}
			message += fmt.Sprintf(": policy %s, generation %d", is.Policy, is.PolicyGeneration)
		case good && (again || o == nil && c.Type != v1alpha1.Removed), !good && again && o.Message == c.Message:
			continue
		}
		a.cluster.Event(ctx, "Node", "", a.o.Node, a.o.Node, c.Reason, "lanes: "+message)
	}
}

// equal compares two statuses without their times.
func equal(a, b *v1alpha1.LaneNodeStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Policy == b.Policy && a.PolicyGeneration == b.PolicyGeneration && a.Agent == b.Agent &&
		slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Classes, b.Classes) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Message == y.Message && x.Reason == y.Reason &&
				x.ObservedGeneration == y.ObservedGeneration
		})
}

// status returns the status of the node's LaneNode. Conditions that are as in told keep their
// times.
func (a *Agent) status(told *v1alpha1.LaneNodeStatus) *v1alpha1.LaneNodeStatus {
	st, snap := a.lanes.Status(), a.lanes.Now()
	out := &v1alpha1.LaneNodeStatus{Policy: st.Policy, PolicyGeneration: st.Generation, Agent: a.o.Version,
		Renewed: metav1.Now(), Devices: st.Devices}
	var old []metav1.Condition
	if told != nil {
		old = told.Conditions
	}
	if a.lanes.Removing() {
		return a.removedStatus(old)
	}
	if !st.Known {
		return out
	}
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
	reason, message := v1alpha1.ReasonAsThePolicySays, "the node's card is as the policy says"
	switch {
	case st.Problem != "":
		reason, message = v1alpha1.ReasonRefused, st.Problem
	case !st.Applied:
		reason, message = v1alpha1.ReasonWaitsForPods, st.String()
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Applied, st.Applied, reason, message))
	reason, message = v1alpha1.ReasonLanesHold, "the lanes are as they were applied"
	if len(st.Unhealthy) > 0 {
		reason, message = v1alpha1.ReasonLanesDoNotHold, strings.Join(st.Unhealthy, "; ")
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Healthy, len(st.Unhealthy) == 0, reason, message))
	a.mu.Lock()
	bypassed, refused := a.bypassed.String(), refusals(a.refused)
	a.mu.Unlock()
	reason, message = v1alpha1.ReasonKubeletHasThem, "kubelet has the node's classes"
	if refused != "" {
		reason, message = v1alpha1.ReasonKubeletRefused, refused
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Offered, refused == "", reason, message))
	reason, message = v1alpha1.ReasonAddressesSeen,
		"the agent found no packets of pods in lanes that the node translates"
	if bypassed != "" {
		reason, message = v1alpha1.ReasonAddressesTranslated, bypassed
	}
	out.Conditions = append(out.Conditions,
		kube.Condition(old, v1alpha1.Steered, bypassed == "", reason, message))
	return out
}

// refusals returns what kubelet refuses, and why, as text.
func refusals(refused map[string]string) string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		out = append(out, what+": kubelet refuses it: "+refused[what])
	}
	return strings.Join(out, "; ")
}

// cgroup returns the control group of a container in the host's network, "" if it is not known. It
// also returns "" if the policy does not classify by control group: ports then identify the
// packets. cgroup searches for a group with the container's ID in its name, because the path
// depends on kubelet and the runtime.
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
	p, known, err := a.cluster.Policy()
	if !known || err != nil || p == nil {
		return false
	}
	force := p.Spec.Uplink.Force["classifier"]
	return force == plan.BySockops || force == plan.ByNetPrio
}

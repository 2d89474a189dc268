// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/pods"
)

// services returns the Services that lead to a pod, none if Services are not read.
func (a *Attacher) services(pod *corev1.Pod) []pods.Service {
	if a.Services == nil {
		return nil
	}
	return a.Services(pod)
}

// put attaches a pod to its lanes. Other users write the pod's Services, so a Service must not
// prevent the attachment. If the attachment fails because of Services (a frontend leads to another
// lane, or the card has too few rules), put attaches the pod without them, and reports that.
func (a *Attacher) put(ctx context.Context, at lanes.Attachment, pod *corev1.Pod, where pods.Where) error {
	err := a.try(ctx, at, pod, where)
	if err == nil || len(where.Services) == 0 {
		return err
	}
	where.Services = nil
	if err := a.try(ctx, at, pod, where); err != nil {
		return err
	}
	a.leftOut(&at, err)
	return nil
}

func (a *Attacher) try(ctx context.Context, at lanes.Attachment, pod *corev1.Pod, where pods.Where) (err error) {
	if at.Members, err = pods.Members(pod, where, at.Grants); err != nil {
		return err
	}
	at.Services = where.Services
	err = a.Lanes.Attach(ctx, at)
	if taken, ok := errors.AsType[*lanes.ClaimError](err); ok && a.ended(ctx, &taken.By) {
		if err = a.Lanes.Detach(ctx, taken.By.Sandbox, ""); err == nil {
			err = a.Lanes.Attach(ctx, at)
		}
	}
	return err
}

// ended reports whether kubelet no longer has the pod of an attachment: the agent has missed the
// pod's end. It returns false if kubelet does not answer.
func (a *Attacher) ended(ctx context.Context, at *lanes.Attachment) bool {
	given, err := a.Kubelet.Get(ctx, at.Namespace, at.Pod)
	return err == nil && given == nil
}

// leftOut logs, and reports in an event about the pod, that packets for its Services do not go to
// its lane.
func (a *Attacher) leftOut(at *lanes.Attachment, err error) {
	a.Log.Warn("packets of Services do not go to the pod's lane", "pod", at.Name(), "error", err)
	a.Event(at.Namespace, at.Pod, at.UID, events.ServiceNotInLane,
		"packets for the pod's Services do not go to its lane: "+err.Error())
}

// FollowServices attaches pods in lanes again if the Services that lead to them have changed. here
// has this node's pods by NAMESPACE/NAME.
func (a *Attacher) FollowServices(ctx context.Context, here map[string]*corev1.Pod) {
	if a.Services == nil {
		return
	}
	for _, at := range a.Lanes.Attachments() {
		pod := here[at.Name()]
		if pod == nil || string(pod.UID) != at.UID || pod.Spec.HostNetwork {
			continue
		}
		now := a.services(pod)
		if slices.Equal(now, at.Services) {
			continue
		}
		where := pods.Where{Addrs: at.Addrs, Node: a.Addrs(), Services: now}
		err := a.try(ctx, at, pod, where)
		if err == nil {
			continue
		}
		a.leftOut(&at, err)
		if where.Services = nil; len(at.Services) == 0 {
			continue
		}
		if err := a.try(ctx, at, pod, where); err != nil {
			a.Log.Error("packets of removed Services still go to the pod's lane", "pod", at.Name(), "error", err)
		}
	}
}

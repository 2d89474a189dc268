// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/run/pod"
	"github.com/niclane/niclane/lab"
)

// A podTask is a task that runs as a pod.
type podTask struct{ *pod.Pod }

func (t *podTask) name() string          { return t.Name() }
func (t *podTask) over() <-chan struct{} { return t.Over() }
func (t *podTask) ended() error          { return t.Ended() }

func (t *podTask) result(context.Context, any) error {
	return errors.New(t.Name() + " has no result")
}

// stop deletes the pod, even after the run's context has ended.
func (t *podTask) stop() error { return t.Delete(context.Background()) }

// pods is what a measurement has created in a Kubernetes cluster.
type pods struct {
	kubectl pod.Kubectl
	version string // version of the cluster
	run     string // value of the label on each object that this run creates
	// policy is the LanePolicy in the cluster, created from text.
	policy *pod.Policy
	text   string
}

// reach asks the cluster for its version, before anything is started.
func (p *pods) reach(ctx context.Context, r *result.Result) (err error) {
	if p.version, err = p.kubectl.Version(ctx); err != nil {
		return fmt.Errorf("server.kind: pod: %w", err)
	}
	p.run = strings.ToLower(rand.Text()[:10])
	r.Environment.Versions = map[string]string{"Kubernetes": p.version}
	return nil
}

// setLanePolicy replaces the LanePolicy in the cluster by the variant's. The run must have no pod at
// that time.
func (m *measurement) setLanePolicy(ctx context.Context, v experiment.Variant) error {
	values := m.values(lab.SUT)
	rate, _ := m.on.link()
	values[experiment.NameLink] = pod.Quantity(rate)
	text, err := experiment.Expand(v.LanePolicy, values)
	if err != nil {
		return fmt.Errorf("lane-policy: %w", err)
	}
	if text == m.pods.text {
		return nil
	}
	if err := m.dropLanePolicy(ctx); err != nil || text == "" {
		return err
	}
	manifest, err := experiment.ParseLanePolicy(text)
	if err != nil {
		return fmt.Errorf("lane-policy: %w", err)
	}
	m.pods.policy, err = pod.Follow(ctx, m.pods.kubectl, manifest, m.pods.run)
	if err == nil {
		m.pods.text = text
	}
	return err
}

// dropLanePolicy removes the LanePolicy, if there is one.
func (m *measurement) dropLanePolicy(ctx context.Context) error {
	if m.pods.policy == nil {
		return nil
	}
	err := m.pods.policy.Remove(ctx)
	if err == nil {
		m.pods.policy, m.pods.text = nil, ""
	}
	return err
}

// stopPods deletes the run's pods.
func (m *measurement) stopPods() error {
	var errs []error
	for _, x := range m.instances {
		if t, ok := x.server.(*podTask); ok {
			errs = append(errs, t.stop())
		}
	}
	return errors.Join(errs...)
}

// startPod creates the variant's pod and waits until kubelet reports it ready.
func (m *measurement) startPod(ctx context.Context, r *result.Server, one *instance) error {
	text, err := experiment.Expand(m.e.Server.Manifest, m.values(lab.SUT))
	if err != nil {
		return fmt.Errorf("server.manifest: %w", err)
	}
	w := pod.Wanted{Run: m.pods.run, Longest: time.Duration(m.e.TimeLimit) + sessionMargin}
	if w.Manifest, err = experiment.ParsePod(text); err != nil {
		return fmt.Errorf("server.manifest: %w", err)
	}
	if m.variant != nil {
		w.Limits = m.variant.Limits
	}
	p, err := pod.Start(ctx, m.pods.kubectl, w)
	if p != nil {
		one.server = &podTask{p} // it must be deleted, also after an error
	}
	if err != nil {
		return err
	}
	timeout := time.Duration(m.e.Server.Ready.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("server.ready.timeout of %v has passed", timeout))
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		return err
	}
	r.Version, r.Address = p.Server(), m.address()
	return nil
}

// podText describes a variant's pod, and the queue sets of its node's LanePolicy.
func podText(e *experiment.Experiment, v experiment.Variant) (string, error) {
	node := ", no LanePolicy"
	if v.LanePolicy != "" {
		classes, err := e.Classes(&v)
		if err != nil {
			return "", err
		}
		if node = ", a LanePolicy"; len(classes) > 0 {
			node += " with " + strings.Join(classes, ", ")
		}
	}
	if v.Server == nil || len(v.Server.Limits) == 0 {
		return "the pod of the manifest" + node, nil
	}
	var limits []string
	for _, resource := range slices.Sorted(maps.Keys(v.Server.Limits)) {
		limits = append(limits, resource+": "+v.Server.Limits[resource])
	}
	return "a pod with " + strings.Join(limits, ", ") + node, nil
}

// podAddress returns the address of the running pod, "" if there is none.
func (m *measurement) podAddress() string {
	for _, s := range m.servers() {
		if t, ok := s.(*podTask); ok {
			return t.Address()
		}
	}
	return ""
}

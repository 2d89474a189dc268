// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/hostif"
)

// ifName is what containerd and CRI-O call a pod's first interface, which NRI does
// not say.
const ifName = "eth0"

// Parts of the time that the runtime gives a plugin for a request (2 s by default).
const (
	// first: to know whether a pod has a lane.
	first = 4
	// whole: to have put it there; the rest is the answer's way.
	whole = 4. / 3
)

// timeLeft is the runtime's time for a request.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return stub.DefaultRequestTimeout
}

// RunPodSandbox puts a pod into its lanes before any of its containers is made. The
// runtime takes an error for the pod's, which kubelet makes again.
func (s *session) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return s.start(ctx, pod)
}

// CreateContainer finds the pods whose RunPodSandbox nobody has heard: their
// containers are not made without their lanes either.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	_ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, s.start(ctx, pod)
}

// StopPodSandbox takes a pod out of its lanes.
func (s *session) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// RemovePodSandbox takes out what StopPodSandbox did not come for.
func (s *session) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// start puts a pod into its lanes, unless it is in them (by niclane-cni too).
func (p *Plugin) start(ctx context.Context, pod *api.PodSandbox) error {
	if slices.ContainsFunc(p.o.Lanes.Attachments(), func(a lanes.Attachment) bool { return a.Sandbox == pod.GetId() }) {
		return nil
	}
	left := timeLeft(ctx)
	r := p.request(cni.Add, pod)
	lane, done := make(chan struct{}), make(chan cni.Answer, 1)
	most := time.Duration(float64(left) / whole)
	doing, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	go func() {
		defer cancel()
		done <- p.o.Lanes.Handle(doing, r, func() {
			close(lane)
			r.HostIf = hostif.OfProcess(int(pod.GetPid()), ifName)
		})
	}()
	unknown := time.NewTimer(left / first)
	defer unknown.Stop()
	for known := lane; ; {
		select {
		case a := <-done:
			return p.verdict(r, a)
		case <-known:
			known = nil
			unknown.Stop()
		case <-unknown.C:
			// What goes on may still find a lane: better late.
			if err := p.unknown(r, errors.New("kubelet has not said in time whether the pod has a lane")); err != nil {
				go p.undo(r, done)
				return err
			}
			return nil
		case <-doing.Done():
			if len(done) > 0 {
				continue
			}
			go p.undo(r, done)
			return fmt.Errorf("niclane: pod %s/%s is not in its lane after %v: kubelet tries again", r.Namespace,
				r.Pod, most.Round(100*time.Millisecond))
		}
	}
}

// verdict is what becomes of a pod by an answer.
func (p *Plugin) verdict(r *cni.Request, a cni.Answer) error {
	switch {
	case a.Error == "":
		return nil
	case a.Lane:
		return fmt.Errorf("niclane: pod %s/%s is not in its lane: %s", r.Namespace, r.Pod, a.Error)
	}
	return p.unknown(r, errors.New(a.Error))
}

// unknown decides about a pod of which kubelet does not say whether it has a lane: one
// that asks for one does not start. Others do; one among them that has a lane all the
// same is put there, or told of, when kubelet answers.
func (p *Plugin) unknown(r *cni.Request, why error) error {
	if p.o.Lanes.Asks(r.Namespace, r.Pod, r.UID) {
		return fmt.Errorf("niclane: pod %s/%s asks for a lane and cannot start without it: %w", r.Namespace, r.Pod, why)
	}
	p.o.Log.Warn("a pod is let through", "pod", r.Namespace+"/"+r.Pod, "error", why)
	return nil
}

// undo takes a pod out again that was put into its lane after the runtime was told
// that it is not.
func (p *Plugin) undo(r *cni.Request, done <-chan cni.Answer) {
	if a := <-done; a.Error == "" {
		p.o.Lanes.Handle(context.Background(), &cni.Request{Command: cni.Del, Sandbox: r.Sandbox,
			Namespace: r.Namespace, Pod: r.Pod, UID: r.UID}, func() {})
	}
}

// stop takes a sandbox out of its lanes. What takes longer than the runtime waits goes
// on: the end of a pod is never held up.
func (p *Plugin) stop(ctx context.Context, pod *api.PodSandbox) {
	r := p.request(cni.Del, pod)
	p.within(ctx, func() { p.o.Lanes.Handle(context.WithoutCancel(ctx), r, func() {}) })
}

// within does something, and returns when it is done or the runtime's time has passed.
func (p *Plugin) within(ctx context.Context, do func()) {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	timer := time.NewTimer(time.Duration(float64(timeLeft(ctx)) / whole))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// request is a sandbox in the words of niclane-cni.
func (p *Plugin) request(command string, pod *api.PodSandbox) *cni.Request {
	r := &cni.Request{
		Version: cni.Version, Command: command, Sandbox: pod.GetId(), Namespace: pod.GetNamespace(),
		Pod: pod.GetName(), UID: pod.GetUid(),
	}
	if command == cni.Del {
		return r // every interface
	}
	r.IfName = ifName
	for _, ip := range pod.GetIps() {
		if a, err := netip.ParseAddr(ip); err == nil {
			r.Addrs = append(r.Addrs, a.Unmap())
		}
	}
	if p.o.Bandwidth {
		r.IngressRate, r.EgressRate = rate(pod, "ingress"), rate(pod, "egress")
	}
	return r
}

// rate is that of a standard annotation, bit/s; 0: none. What is no rate the runtime
// has refused before (containerd: toCNIBandWidth in internal/cri/server).
func rate(pod *api.PodSandbox, direction string) uint64 {
	q, err := resource.ParseQuantity(pod.GetAnnotations()["kubernetes.io/"+direction+"-bandwidth"])
	if err != nil || q.Value() < 0 {
		return 0
	}
	return uint64(q.Value())
}

// Synchronize takes out of their lanes the pods whose sandboxes the runtime has no
// more. Pods that it has and that are in no lane the agent finds as it finds those of
// the host's network, by kubelet's and the API server's word.
func (s *session) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox,
	_ []*api.Container) ([]*api.ContainerUpdate, error) {
	network := map[string]bool{} // by sandbox: it has its network namespace
	for _, pod := range sandboxes {
		network[pod.GetId()] = slices.ContainsFunc(pod.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool {
			return n.GetType() == "network"
		})
	}
	// Of what is attached now: what comes later is newer than the runtime's list.
	gone := map[string]bool{}
	for _, a := range s.o.Lanes.Attachments() {
		up, listed := network[a.Sandbox]
		hostNetwork := len(a.Addrs) == 0
		if !a.Late() && (!listed || !up && !hostNetwork) {
			gone[a.Sandbox] = true
		}
	}
	s.within(ctx, func() {
		err := s.o.Lanes.Keep(context.WithoutCancel(ctx), func(a lanes.Attachment) bool { return !gone[a.Sandbox] })
		if err != nil {
			s.o.Log.Error("NRI: pods that have ended are in lanes still", "error", err)
		}
	})
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	s.o.Connected()
	return nil, nil
}

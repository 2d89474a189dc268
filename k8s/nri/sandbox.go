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

// ifName is the name that containerd and CRI-O give a pod's first interface. NRI does not
// report it.
const ifName = "eth0"

// Divisors of the time that the runtime gives a plugin for a request (2 s by default).
const (
	// first: the time to learn whether a pod has a lane is a quarter of it.
	first = 4
	// whole: the time to put the pod there is three quarters; the rest is for the answer.
	whole = 4. / 3
)

// timeLeft returns the runtime's time for a request.
func timeLeft(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return stub.DefaultRequestTimeout
}

// RunPodSandbox puts a pod into its lanes before any of its containers is created. An error
// makes the sandbox fail, and kubelet creates it again.
func (s *session) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return s.start(ctx, pod)
}

// CreateContainer does the same for pods whose RunPodSandbox the plugin did not receive:
// their containers do not start without the lanes either.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	_ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, s.start(ctx, pod)
}

// StopPodSandbox removes a pod from its lanes.
func (s *session) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// RemovePodSandbox removes a pod whose StopPodSandbox the plugin did not receive.
func (s *session) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// start puts a pod into its lanes, unless it is in them already (niclane-cni may have done
// so).
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
			// The request continues and may still find a lane, later.
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

// verdict returns nil if the pod may start after this answer, else an error.
func (p *Plugin) verdict(r *cni.Request, a cni.Answer) error {
	switch {
	case a.Error == "":
		return nil
	case a.Lane:
		return fmt.Errorf("niclane: pod %s/%s is not in its lane: %s", r.Namespace, r.Pod, a.Error)
	}
	return p.unknown(r, errors.New(a.Error))
}

// unknown decides about a pod when kubelet does not say whether it has a lane. A pod that
// asks for a lane does not start. Other pods start. If such a pod has a lane after all, the
// agent puts it there, or reports an event, when kubelet answers.
func (p *Plugin) unknown(r *cni.Request, why error) error {
	if p.o.Lanes.Asks(r.Namespace, r.Pod, r.UID) {
		return fmt.Errorf("niclane: pod %s/%s asks for a lane and cannot start without it: %w", r.Namespace, r.Pod, why)
	}
	p.o.Log.Warn("a pod starts, and it is not known whether it has a lane", "pod", r.Namespace+"/"+r.Pod, "error", why)
	return nil
}

// undo removes a pod that was put into its lane after the runtime was told that it is not.
func (p *Plugin) undo(r *cni.Request, done <-chan cni.Answer) {
	if a := <-done; a.Error == "" {
		p.o.Lanes.Handle(context.Background(), &cni.Request{Command: cni.Del, Sandbox: r.Sandbox,
			Namespace: r.Namespace, Pod: r.Pod, UID: r.UID}, func() {})
	}
}

// stop removes a sandbox from its lanes. If that takes longer than the runtime waits, it
// continues in the background: the plugin never delays the end of a pod.
func (p *Plugin) stop(ctx context.Context, pod *api.PodSandbox) {
	r := p.request(cni.Del, pod)
	p.within(ctx, func() { p.o.Lanes.Handle(context.WithoutCancel(ctx), r, func() {}) })
}

// within runs do, and returns when do is done or the runtime's time has passed.
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

// request converts a sandbox to niclane-cni's request.
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

// rate returns the value of a standard bandwidth annotation in bit/s; 0: none. The runtime
// has already refused invalid values (containerd: toCNIBandWidth in internal/cri/server).
func rate(pod *api.PodSandbox, direction string) uint64 {
	q, err := resource.ParseQuantity(pod.GetAnnotations()["kubernetes.io/"+direction+"-bandwidth"])
	if err != nil || q.Value() < 0 {
		return 0
	}
	return uint64(q.Value())
}

// Synchronize removes pods from lanes if the runtime no longer has their sandboxes. Sweep
// attaches running pods that are in no lane, by the data of kubelet and the API server.
func (s *session) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox,
	_ []*api.Container) ([]*api.ContainerUpdate, error) {
	network := map[string]bool{} // by sandbox: whether it has its network namespace
	for _, pod := range sandboxes {
		network[pod.GetId()] = slices.ContainsFunc(pod.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool {
			return n.GetType() == "network"
		})
	}
	// Only present attachments: later ones are newer than the runtime's list.
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
			s.o.Log.Error("NRI: pods that have ended are still in lanes", "error", err)
		}
	})
	s.mu.Lock()
	s.synced = true
	s.mu.Unlock()
	s.o.Connected()
	return nil, nil
}

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

// ifName is the name that containerd and CRI-O give to a pod's first interface. NRI does not report
// the name.
const ifName = "eth0"

// The runtime gives a plugin limited time for a request (2 s by default). The plugin divides this
// time by these numbers.
const (
	// first: to find out whether a pod has a lane may take a quarter of the time.
	first = 4
	// whole: to put the pod into its lane may take three quarters. The rest is for the answer.
	whole = 4. / 3
)

// timeLeft returns how long the runtime still waits for the answer to a request.
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

// CreateContainer puts a pod into its lanes if the plugin did not receive its RunPodSandbox. So its
// containers do not start without its lanes either.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	_ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, s.start(ctx, pod)
}

// StopPodSandbox removes a pod from its lanes.
func (s *session) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// RemovePodSandbox removes a pod from its lanes if the plugin did not receive its StopPodSandbox.
func (s *session) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s.stop(ctx, pod)
	return nil
}

// start puts a pod into its lanes, unless it is already there, for example by niclane-cni. If it
// returns an error, the runtime does not start the pod.
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
			// The request continues in the background. It may still put the pod into a lane.
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

// verdict returns nil if the pod may start after this answer of the agent, else an error.
func (p *Plugin) verdict(r *cni.Request, a cni.Answer) error {
	switch {
	case a.Error == "":
		return nil
	case a.Lane:
		return fmt.Errorf("niclane: pod %s/%s is not in its lane: %s", r.Namespace, r.Pod, a.Error)
	}
	return p.unknown(r, errors.New(a.Error))
}

// unknown decides whether a pod may start if kubelet does not say whether it has a lane. It returns
// an error for a pod that asks for a lane. Other pods start. If such a pod does have a lane, the
// agent puts it there when kubelet answers again, or sends an event.
func (p *Plugin) unknown(r *cni.Request, why error) error {
	if p.o.Lanes.Asks(r.Namespace, r.Pod, r.UID) {
		return fmt.Errorf("niclane: pod %s/%s asks for a lane and cannot start without it: %w", r.Namespace, r.Pod, why)
	}
	p.o.Log.Warn("a pod starts, and it is not known whether it has a lane", "pod", r.Namespace+"/"+r.Pod, "error", why)
	return nil
}

// undo removes a pod from its lane if it gets there after the plugin has already refused it. It
// waits for the request's answer.
func (p *Plugin) undo(r *cni.Request, done <-chan cni.Answer) {
	if a := <-done; a.Error == "" {
		p.o.Lanes.Handle(context.Background(), &cni.Request{Command: cni.Del, Sandbox: r.Sandbox,
			Namespace: r.Namespace, Pod: r.Pod, UID: r.UID}, func() {})
	}
}

// stop removes a sandbox from its lanes. If this takes too long, it continues in the background, so
// that the plugin never delays the end of a pod.
func (p *Plugin) stop(ctx context.Context, pod *api.PodSandbox) {
	r := p.request(cni.Del, pod)
	p.within(ctx, func() { p.o.Lanes.Handle(context.WithoutCancel(ctx), r, func() {}) })
}

// within runs do. It returns when do is done, or after three quarters of the time that the runtime
// waits.
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

// request converts a sandbox to a request as niclane-cni sends it.
func (p *Plugin) request(command string, pod *api.PodSandbox) *cni.Request {
	r := &cni.Request{
		Version: cni.Version, Command: command, Sandbox: pod.GetId(), Namespace: pod.GetNamespace(),
		Pod: pod.GetName(), UID: pod.GetUid(),
	}
	if command == cni.Del {
		return r // without IfName, the request is for all interfaces of the sandbox
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

// rate returns the value of the annotation kubernetes.io/ingress-bandwidth or egress-bandwidth in
// bit/s, 0 if there is none. The runtime has already refused invalid values (containerd:
// toCNIBandWidth in internal/cri/server).
func rate(pod *api.PodSandbox, direction string) uint64 {
	q, err := resource.ParseQuantity(pod.GetAnnotations()["kubernetes.io/"+direction+"-bandwidth"])
	if err != nil || q.Value() < 0 {
		return 0
	}
	return uint64(q.Value())
}

// Synchronize gets the list of the runtime's sandboxes at each connection. If a pod's sandbox is
// not in the list, it removes the pod from its lanes. It adds no pods: attach.Attacher.Sweep
// attaches running pods that are not in their lane.
func (s *session) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox,
	_ []*api.Container) ([]*api.ContainerUpdate, error) {
	network := map[string]bool{} // whether a sandbox has its network namespace, by its ID
	for _, pod := range sandboxes {
		network[pod.GetId()] = slices.ContainsFunc(pod.GetLinux().GetNamespaces(), func(n *api.LinuxNamespace) bool {
			return n.GetType() == "network"
		})
	}
	// Only pods that are in lanes now can be removed. The runtime's list does not know later ones.
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

// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/attach/attachtest"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/reach"
	lanepods "github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/test/simcard/bed"
)

// An agent is niclane-agent. The field given replaces the API server and kubelet. After the agent's
// end, the next one knows only what the agent has written to disk.
type agent struct {
	t     *testing.T
	dir   string
	given *attachtest.Given

	applier  *applier.Applier
	lanes    *lanes.Manager
	attacher *attach.Attacher
	end      func()
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{t: t, dir: t.TempDir(), given: attachtest.NewGiven(), end: func() {}}
	if err := os.Mkdir(filepath.Join(a.dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.end() })
	return a
}

// start starts a new agent with a policy. A nil policy means that no policy selects the node.
func (a *agent) start(p *v1alpha1.LanePolicy) {
	a.t.Helper()
	a.applier = applier.New(filepath.Join(a.dir, "state"), filepath.Join(a.dir, "run"), filepath.Join(a.dir, "k.yaml"))
	log := slog.New(slog.NewTextHandler(a.t.Output(), nil))
	var err error
	a.lanes, err = lanes.New(lanes.Options{
		Name: "n", Path: filepath.Join(a.dir, "state.json"), RunDir: a.dir, Config: a.applier.Config, Boot: "b",
		Applier: a.applier, Log: log,
		Device: func() (string, error) { return applier.DeviceOf(bed.CardAddr.String()) },
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.attacher = &attach.Attacher{
		Lanes: a.lanes, Kubelet: a.given, Pods: a.given, Reachable: new(reach.Links).OnDevice, Log: log,
		Addrs:    func() []netip.Addr { return []netip.Addr{bed.CardAddr} },
		Event:    func(_, _, _, _, message string) { a.t.Log(message) },
		Services: nodePort,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.lanes.Run(ctx); close(done) }()
	a.end = func() { cancel(); <-done }
	a.follow(p)
}

// nodePort is a Service that leads from a port of the node to the first pod.
func nodePort(p *corev1.Pod) []lanepods.Service {
	if p.Name != "first" {
		return nil
	}
	return []lanepods.Service{{Target: port, Frontend: lanepods.Frontend{Ports: params.Ports{Protocol: "udp", First: front,
		Last: front}}}}
}

// follow sets a policy, which must then be applied.
func (a *agent) follow(p *v1alpha1.LanePolicy) {
	a.t.Helper()
	a.lanes.SetPolicy(a.t.Context(), p, nil)
	if s := a.lanes.Status(); !s.Applied {
		a.t.Fatalf("the policy is not applied: %s", s.String())
	}
}

// queues returns the numbers of a lane's queues.
func (a *agent) queues(lane string) []int {
	a.t.Helper()
	for _, l := range a.lanes.Lanes() {
		if l.Name == lane {
			return l.Queues
		}
	}
	a.t.Fatalf("no lane %s in %+v", lane, a.lanes.Lanes())
	return nil
}

// add starts a pod with a unit of a class, and reports it to the agent as the runtime does.
func (a *agent) add(p *place, class, unit, annotation string) {
	a.t.Helper()
	pod := a.run(p, class, unit)
	if annotation != "" {
		pod.Annotations = map[string]string{lanepods.Annotation: annotation}
	}
	a.ask(cni.Add, p, true)
}

// run starts a pod with a unit of a class. It does not report the pod to the agent.
func (a *agent) run(p *place, class, unit string) *corev1.Pod {
	return a.given.Run(p.name, class, unit, port, p.addrs()...)
}

// del ends a pod, and reports its end to the agent as the runtime does.
func (a *agent) del(p *place) {
	a.t.Helper()
	a.given.Forget(p.name)
	a.ask(cni.Del, p, false)
}

func (a *agent) ask(command string, p *place, lane bool) {
	a.t.Helper()
	got := a.attacher.Handle(a.t.Context(), &cni.Request{
		Version: cni.Version, Command: command, Sandbox: "sb-" + p.name, IfName: "eth0", HostIf: "ve" + p.name,
		Namespace: "default", Pod: p.name, UID: "u-" + p.name, Addrs: p.addrs(),
	}, func() {})
	if got.Error != "" || got.Lane != lane {
		a.t.Fatalf("%s %s: %+v", command, p.name, got)
	}
}

// sweep makes the agent compare its pods in lanes with the pods that kubelet and the API server
// have.
func (a *agent) sweep() {
	a.t.Helper()
	if err := a.attacher.Sweep(a.t.Context(), a.given.Here(), func(*corev1.Pod, string) string {
		return ""
	}); err != nil {
		a.t.Fatal(err)
	}
}

// attached returns the names of the pods in lanes.
func (a *agent) attached() (names []string) {
	for _, at := range a.lanes.Attachments() {
		names = append(names, at.Pod)
	}
	slices.Sort(names)
	return names
}

// holds fails the test if the card is not as the agent's journal says.
func (a *agent) holds(when string) {
	a.t.Helper()
	views, err := a.applier.Look(a.t.Context())
	if err != nil || len(views) != 1 || len(views[0].Drifts) != 0 {
		a.t.Errorf("%s: %+v, %v", when, views, err)
	}
}

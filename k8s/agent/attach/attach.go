// SPDX-License-Identifier: Apache-2.0

// Package attach puts pods into the lanes that kubelet has given them. It asks kubelet which units
// a pod has, reads from the pod's object which packets belong to its lanes, and makes the node
// steer them. Requests come from niclane-cni or by NRI, with the same result.
package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/pods/podresources"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/intent"
)

// Kubelet reports which devices and claims pods were given. *podresources.Client implements it.
type Kubelet interface {
	Get(ctx context.Context, namespace, name string) (*podresources.Pod, error)
	List(ctx context.Context) ([]podresources.Pod, error)
}

// Pods finds the object of a pod, in the agent's cache or in the API server.
type Pods interface {
	// Known returns the cached pod, nil if the cache does not have it. It asks no server.
	Known(namespace, name, uid string) *corev1.Pod
	Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error)
}

// An Attacher puts pods into lanes.
type Attacher struct {
	Lanes   *lanes.Manager
	Kubelet Kubelet
	Pods    Pods
	// Reachable returns the tunnels in which packets of a pod with these addresses pass the device, as a
	// lanes file has them. It returns an error if niclane does not see the addresses there. The error
	// says why. node has the node's addresses.
	Reachable func(device string, node, addrs []netip.Addr) (tunnels []string, err error)
	// Addrs returns the node's addresses (InternalIP). Its node ports are at these addresses.
	Addrs func() []netip.Addr
	// ByCgroup reports whether packets of pods in the host's network are recognised by control group.
	// The group exists only when the pod runs. If ByCgroup is nil or returns false, they are
	// recognised by ports.
	ByCgroup func() bool
	// Recover records a claim (NAMESPACE/NAME) again that kubelet has prepared on this node, from the
	// API server: the agent's record is gone, and kubelet prepares a claim only once. It may be nil.
	Recover func(ctx context.Context, claim string) error
	// Services returns the Services that lead to a pod. It is nil if Services are not read.
	Services func(*corev1.Pod) []pods.Service
	// Limit limits the rate at which packets reach a pod, in bit/s, on the host's end of the pod's
	// interface. 0 removes the limit.
	Limit func(hostIf string, bits uint64) error
	// Event sends an event about the pod. It must not block.
	Event func(namespace, pod, uid, reason, message string)
	// Took is called after each request with the time that it took. did says whether a pod had to be
	// put into a lane or taken out. Took may be nil.
	Took func(command string, did bool, took time.Duration)
	Log  *slog.Logger

	outside map[string]string // why pods are outside their lanes, by UID: FollowTunnels has said so
}

// Handle does what the runtime asks, by niclane-cni or by NRI. If a pod has to be put into a lane
// or taken out, Handle first calls early once. early may fill in those fields of r that only pods
// with lanes need.
func (a *Attacher) Handle(ctx context.Context, r *cni.Request, early func()) cni.Answer {
	if a.Took != nil {
		begin, did, say := time.Now(), false, early
		early = func() { did = true; say() }
		defer func() { a.Took(r.Command, did, time.Since(begin)) }()
	}
	if a.Lanes.Removing() {
		return cni.Answer{} // pods start and end as if niclane were not there
	}
	var lane bool
	var err error
	switch r.Command {
	case cni.Add:
		lane, err = a.add(ctx, r, early)
		if err != nil && lane {
			a.Event(r.Namespace, r.Pod, r.UID, events.LaneFailed, err.Error())
		}
	case cni.Check:
		lane, err = a.check(ctx, r)
	case cni.Del:
		if a.attached(r) {
			early()
		}
		err = a.Lanes.Detach(ctx, r.Sandbox, r.IfName)
		if r.UID != "" {
			err = errors.Join(err, a.Lanes.Detach(ctx, lanes.LatePrefix+r.UID, ""))
		}
	case cni.Status:
		err = a.ready()
	case cni.GC:
		valid := map[cni.Attachment]bool{}
		for _, v := range r.Valid {
			valid[v] = true
		}
		still := func(at lanes.Attachment) bool { // the runtime names the attachments of one network only
			return at.IfName == "" || at.Network != r.Network ||
				valid[cni.Attachment{Sandbox: at.Sandbox, IfName: at.IfName}]
		}
		if slices.ContainsFunc(a.Lanes.Attachments(), func(at lanes.Attachment) bool { return !still(at) }) {
			early()
		}
		err = a.Lanes.Keep(ctx, still)
	}
	if err != nil {
		a.Log.Error("the runtime's request failed", "command", r.Command, "pod", r.Namespace+"/"+r.Pod, "error", err)
		return cni.Answer{Lane: lane, Error: err.Error()}
	}
	return cni.Answer{Lane: lane}
}

// attached reports whether the sandbox of a request is in a lane.
func (a *Attacher) attached(r *cni.Request) bool {
	return slices.ContainsFunc(a.Lanes.Attachments(), func(at lanes.Attachment) bool {
		return at.Sandbox == r.Sandbox || r.UID != "" && at.Sandbox == lanes.LatePrefix+r.UID
	})
}

// add puts a pod that is about to start into its lanes. lane says that the pod has a lane, also if
// add returns an error.
func (a *Attacher) add(ctx context.Context, r *cni.Request, early func()) (lane bool, err error) {
	if pod := a.Pods.Known(r.Namespace, r.Pod, r.UID); pod != nil {
		if !MayHaveLane(pod) {
			return false, nil
		}
		if err := a.unused(pod); err != nil {
			return true, err
		}
	}
	given, err := a.Kubelet.Get(ctx, r.Namespace, r.Pod)
	if err != nil {
		return false, fmt.Errorf("it is not known whether the pod has a lane: %w", err)
	}
	grants, holds, err := a.grants(ctx, given)
	if err != nil {
		return true, err
	}
	if len(grants) == 0 {
		return false, nil
	}
	early()
	pod, err := a.Pods.Pod(ctx, r.Namespace, r.Pod, r.UID)
	if err != nil {
		return true, fmt.Errorf("the pod's ports are not known: %w", err)
	}
	at := lanes.Attachment{
		Sandbox: r.Sandbox, IfName: r.IfName, Network: r.Network, HostIf: r.HostIf,
		Namespace: r.Namespace, Pod: r.Pod, UID: r.UID, Grants: grants, Holds: holds,
	}
	addrs := r.Addrs
	if pod.Spec.HostNetwork { // the request comes by NRI: no CNI plugin is called for such pods
		if a.ByCgroup != nil && a.ByCgroup() {
			return true, nil // Sweep attaches the pod when it runs
		}
		addrs, at.IfName = a.Addrs(), ""
	}
	where, err := a.where(&at, pod, addrs, nil)
	if err != nil {
		return true, err
	}
	if !pod.Spec.HostNetwork { // a limit for a pod in the host's network would limit the node's interface
		if err := a.bandwidth(&at, r); err != nil {
			return true, err
		}
	}
	return true, a.put(ctx, at, pod, where)
}

// unused refuses a pod with a lane that only an init container asks for. Init containers end before
// the pod serves, and kubelet does not report what they have. Sidecars (restartPolicy: Always) can
// have lanes. kubelet gives an init container's devices to later containers that ask for the same
// resource or claim.
func (a *Attacher) unused(pod *corev1.Pod) error {
	var used []string
	stays := func(c *corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		serves := func(o corev1.Container) bool { return o.Name == c.Name }
		if stays(&c) || slices.ContainsFunc(pod.Spec.Containers, serves) {
			used = append(used, a.asked(&c)...)
		}
	}
	for _, c := range pod.Spec.InitContainers {
		for _, what := range a.asked(&c) {
			if !slices.Contains(used, what) {
				return fmt.Errorf("init container %s asks for %s, and no other container does: the lane would "+
					"end before "+
					"the pod serves; ask in a container, or in a sidecar (restartPolicy: Always)", c.Name, what)
			}
		}
	}
	return nil
}

// asked returns the resources of lanes that a container asks for.
func (a *Attacher) asked(c *corev1.Container) (out []string) {
	snap := a.Lanes.Now()
	for name := range c.Resources.Limits { // an extended resource's request is its limit
		lane := func(cl inventory.Class) bool { return cl.ResourceName == string(name) }
		if strings.HasPrefix(string(name), v1alpha1.Group+"/") || slices.ContainsFunc(snap.Classes, lane) {
			out = append(out, string(name))
		}
	}
	slices.Sort(out)
	return out
}

// AsksForLane reports whether a pod needs a lane of this node. It does if it asks for the resource
// of a class, or if a claim that has units is reserved for it.
func (a *Attacher) AsksForLane(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if len(a.asked(&c)) > 0 {
			return true
		}
	}
	for _, h := range a.Lanes.Holds() {
		if slices.Contains(h.Pods, string(pod.UID)) {
			return true
		}
	}
	return false
}

// Asks returns the result of AsksForLane for a pod in the cache, and false for any other pod.
func (a *Attacher) Asks(namespace, name, uid string) bool {
	pod := a.Pods.Known(namespace, name, uid)
	return pod != nil && a.AsksForLane(pod)
}

// MayHaveLane reports whether kubelet can have given the pod a lane: the pod has a claim, or asks
// for an extended resource (its name has a domain). DRA may offer extended resources too. Most pods
// have neither, and need not wait for kubelet's answer. The result is the same during the whole
// life of a pod.
func MayHaveLane(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
			for name := range list {
				if strings.Contains(string(name), "/") {
					return true
				}
			}
		}
	}
	return false
}

// ready returns an error if no pod can be put into a lane on this node. The error says why.
func (a *Attacher) ready() error {
	s := a.Lanes.Status()
	if len(s.Devices) == 0 && s.Problem != "" {
		return fmt.Errorf("the node has no lanes: %s", s.Problem)
	}
	return nil
}

// bandwidth applies the rates of the annotations kubernetes.io/ingress-bandwidth and
// egress-bandwidth. It limits packets to the pod on the host's end of the pod's interface, and
// packets from the pod by the lane's ceiling.
func (a *Attacher) bandwidth(at *lanes.Attachment, r *cni.Request) error {
	if r.EgressRate > 0 {
		at.Ceilings = map[string]uint64{}
		for _, g := range at.Grants {
			if c := a.Lanes.Now().Find(g.Class); c != nil && c.Mode == intent.Shared {
				return fmt.Errorf("kubernetes.io/egress-bandwidth: class %s is shared, and its pods share one "+
					"ceiling: leave the annotation out; or let the CNI plugin bandwidth honour it, and remove "+
					"capabilities.bandwidth from niclane-cni's entry (with NRI: nri.bandwidth=false)", g.Class)
			}
			if r.EgressRate < a.link() {
				at.Ceilings[g.Lane] = r.EgressRate
			}
		}
	}
	if r.IngressRate > 0 {
		if r.HostIf == "" || a.Limit == nil {
			return errors.New("kubernetes.io/ingress-bandwidth: the pod's interface on the host (its end of " +
				"a veth pair) is not known: leave the annotation out")
		}
		if err := a.Limit(r.HostIf, r.IngressRate); err != nil {
			return fmt.Errorf("kubernetes.io/ingress-bandwidth: %w", err)
		}
	}
	return nil
}

// highest is the highest rate that a lanes file can have, in bit/s.
const highest = 10_000_000_000_000

// link returns the rate of the link in bit/s, and highest if the rate is not known. A limit of that
// rate limits nothing, and CNI plugins accept any rate.
func (a *Attacher) link() uint64 {
	if d := a.Lanes.Now().Device; d != nil && d.Speed > 0 {
		return min(d.Speed, highest)
	}
	return highest
}

// check returns an error if a pod is not in the lanes that kubelet has given it, or if such a lane
// is unhealthy. lane says that the pod has a lane.
func (a *Attacher) check(ctx context.Context, r *cni.Request) (lane bool, err error) {
	given, err := a.Kubelet.Get(ctx, r.Namespace, r.Pod)
	if err != nil {
		return false, fmt.Errorf("it is not known whether the pod has a lane: %w", err)
	}
	grants, _, err := a.grants(ctx, given)
	if err != nil || len(grants) == 0 {
		return err != nil, err
	}
	all := a.Lanes.Attachments()
	i := slices.IndexFunc(all, func(at lanes.Attachment) bool {
		return at.Sandbox == r.Sandbox && at.IfName == r.IfName
	})
	if i < 0 {
		return true, errors.New("the pod has lanes, but its packets are not steered to them")
	}
	snap := a.Lanes.Now()
	for _, g := range all[i].Grants {
		if c := snap.Find(g.Class); c == nil {
			return true, fmt.Errorf("class %s: %w", g.Class, inventory.ErrNoClass)
		} else if u := c.Find(g.Units[0]); u != nil && u.Unhealthy != "" {
			return true, fmt.Errorf("lane %s does not hold: %s", g.Lane, u.Unhealthy)
		}
	}
	return true, nil
}

// grants returns the lanes that kubelet has given a pod, and the keys of the holds of its claims.
// If the node does not have one of these lanes, it returns an error, never only the others.
func (a *Attacher) grants(ctx context.Context, given *podresources.Pod) (out []pods.Grant, holds []string, err error) {
	if given == nil {
		return nil, nil, nil
	}
	snap := a.Lanes.Now()
	byResource := map[string]*inventory.Class{}
	for i := range snap.Classes {
		if c := &snap.Classes[i]; c.ResourceName != "" {
			byResource[c.ResourceName] = c
		}
	}
	all := a.Lanes.Holds()
	claims := map[string][]string{} // containers that use the claim, by the claim's name
	for _, ct := range given.Containers {
		for _, d := range ct.Devices {
			c := byResource[d.Resource]
			if c == nil {
				if strings.HasPrefix(d.Resource, v1alpha1.Group+"/") {
					return nil, nil, fmt.Errorf("container %s has %s: %w", ct.Name, d.Resource, inventory.ErrNoClass)
				}
				continue
			}
			g, err := grant(c, ct.Name, d.IDs)
			if err != nil {
				return nil, nil, fmt.Errorf("container %s: %w", ct.Name, err)
			}
			out = append(out, g)
		}
		for _, cl := range ct.Claims {
			if slices.Contains(cl.Drivers, v1alpha1.Group) {
				name := cl.Namespace + "/" + cl.Name
				claims[name] = append(claims[name], ct.Name)
			}
		}
	}
	var names []string
	for name := range claims {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		of := func(h inventory.Hold) bool { return h.Claim == name }
		i := slices.IndexFunc(all, of)
		if i < 0 && a.Recover != nil {
			if err := a.Recover(ctx, name); err != nil {
				return nil, nil, fmt.Errorf("claim %s: the agent has no record of it: %w", name, err)
			}
			all = a.Lanes.Holds()
			i = slices.IndexFunc(all, of)
		}
		if i < 0 {
			return nil, nil, fmt.Errorf("claim %s was not prepared on this node", name)
		}
		container := ""
		if len(claims[name]) == 1 {
			container = claims[name][0]
		}
		holds = append(holds, all[i].Key)
		for _, u := range all[i].Units {
			c := snap.Find(u.Class)
			if c == nil {
				return nil, nil, fmt.Errorf("claim %s: class %s: %w", name, u.Class, inventory.ErrNoClass)
			}
			g, err := grant(c, container, []string{u.Unit})
			if err != nil {
				return nil, nil, fmt.Errorf("claim %s: %w", name, err)
			}
			g.Parameters = u.Parameters
			out = append(out, g)
		}
	}
	return out, holds, nil
}

func grant(c *inventory.Class, container string, ids []string) (pods.Grant, error) {
	g := pods.Grant{Container: container, Class: c.Name, Units: slices.Sorted(slices.Values(ids)), Lane: c.Name}
	if c.Mode == intent.Shared {
		return g, nil
	}
	j, err := policy.Join(c.Name, ids)
	g.Lane = policy.UnitID(c.Name, j.First)
	return g, err
}

// Sweep compares the pods in lanes with kubelet's pods. It removes pods that kubelet no longer has,
// because the agent has missed their end. It attaches running pods that are not in their lane yet:
// pods in the host's network, for which no CNI plugin is called, and pods that started while the
// agent was down. here has this node's pods by NAMESPACE/NAME.
func (a *Attacher) Sweep(ctx context.Context, here map[string]*corev1.Pod,
	cgroup func(pod *corev1.Pod, container string) string) error {
	// kubelet's answer may lack pods that are attached while kubelet answers. Sweep keeps these pods.
	before := map[string]bool{} // by sandbox
	for _, at := range a.Lanes.Attachments() {
		before[at.Sandbox] = true
	}
	asked := time.Now()
	given, err := a.Kubelet.List(ctx)
	if err != nil {
		return err
	}
	has, use := map[string]bool{}, map[string]bool{}
	for i := range given {
		has[given[i].Namespace+"/"+given[i].Name] = true
		for _, c := range given[i].Containers {
			for _, d := range c.Devices {
				for _, id := range d.IDs {
					use[id] = true
				}
			}
		}
	}
	a.Lanes.Forget(asked.Add(-recorded), use)
	attached := map[string]bool{} // by UID
	err = a.Lanes.Keep(ctx, func(at lanes.Attachment) bool {
		if !before[at.Sandbox] {
			return true
		}
		pod, known := here[at.Name()]
		still := has[at.Name()] && (!known || string(pod.UID) == at.UID)
		if known && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			moved(&at, pod)) {
			still = false
		}
		return still
	})
	for _, at := range a.Lanes.Attachments() {
		attached[at.UID] = true
	}
	for i := range given {
		pod := here[given[i].Namespace+"/"+given[i].Name]
		if pod == nil || attached[string(pod.UID)] || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		if lerr := a.lately(ctx, &given[i], pod, cgroup); lerr != nil {
			a.Log.Error("pod is not in its lane", "pod", pod.Namespace+"/"+pod.Name, "error", lerr)
			a.Event(pod.Namespace, pod.Name, string(pod.UID), events.LaneFailed, lerr.Error())
		}
	}
	return err
}

// recorded is the longest time until kubelet lists devices that a device plugin has given out.
const recorded = 2 * time.Second

// moved reports whether a pod has other addresses now, because its sandbox was created again. It is
// true only for pods that were attached by their object in the API server (Late).
func moved(at *lanes.Attachment, pod *corev1.Pod) bool {
	now := addresses(pod)
	return at.Late() && len(at.Addrs) > 0 && len(now) > 0 && !slices.Equal(now, at.Addrs)
}

// addresses returns the addresses that a pod has in the API server.
func addresses(pod *corev1.Pod) (out []netip.Addr) {
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// lately attaches a pod that already runs.
func (a *Attacher) lately(ctx context.Context, given *podresources.Pod, pod *corev1.Pod,
	cgroup func(*corev1.Pod, string) string) error {
	grants, holds, err := a.grants(ctx, given)
	if err != nil || len(grants) == 0 {
		return err
	}
	at := lanes.Attachment{
		Sandbox: lanes.LatePrefix + string(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Grants: grants, Holds: holds,
	}
	where, err := a.where(&at, pod, addresses(pod), cgroup)
	if err != nil {
		return err
	}
	if err := a.put(ctx, at, pod, where); err != nil {
		return err
	}
	a.Log.Info("pod put into its lane after it had started", "pod", at.Name(), "hostNetwork", pod.Spec.HostNetwork)
	a.Event(pod.Namespace, pod.Name, at.UID, events.LaneLate, "the pod is in its lane now, after it had started")
	return nil
}

// where returns how to recognise the packets of a pod with these addresses. It also sets at.Addrs and
// at.Tunnels.
// For pods in the host's network, cgroup returns a container's control group. If cgroup is nil,
// their packets are recognised only by ports.
func (a *Attacher) where(at *lanes.Attachment, pod *corev1.Pod, addrs []netip.Addr,
	cgroup func(*corev1.Pod, string) string) (pods.Where, error) {
	where := pods.Where{Addrs: addrs, Node: a.Addrs(), Services: a.services(pod)}
	if !pod.Spec.HostNetwork {
		at.Addrs = addrs
		var err error
		at.Tunnels, err = a.reachable(addrs)
		return where, err
	}
	if cgroup != nil {
		where.Cgroup = func(container string) string { return cgroup(pod, container) }
	}
	return where, errors.Join(a.hostNetwork(at.Grants), declares(pod, at.Grants))
}

// hostNetwork refuses classes that the policy does not give to pods of the host's network.
func (a *Attacher) hostNetwork(grants []pods.Grant) error {
	snap := a.Lanes.Now()
	for _, g := range grants {
		if c := snap.Find(g.Class); c != nil && !c.HostNetwork {
			return fmt.Errorf("class %s has no lanes for pods of the host's network, because such a pod can name "+
				"any port of the node: use the pod network, or set hostNetwork: true at the class in the policy",
				g.Class)
		}
	}
	return nil
}

// declares returns an error if a container in the host's network has a lane but names no port: the
// lane would get all packets of the node's address.
func declares(pod *corev1.Pod, grants []pods.Grant) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		given := slices.ContainsFunc(grants, func(g pods.Grant) bool { return g.Container == c.Name })
		if given && len(c.Ports) == 0 && !pods.Annotated(pod) {
			return fmt.Errorf("container %s is in the host's network and names no port: its address is the node's, "+
				"so the lane would get every packet of the node; give containerPorts or the annotation %s",
				c.Name, pods.Annotation)
		}
	}
	return nil
}

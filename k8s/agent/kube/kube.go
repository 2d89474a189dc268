// SPDX-License-Identifier: Apache-2.0

// Package kube is the agent's view of the API server. Watches keep the agent's node, its
// LaneNode, the pods of the node and, if wanted, the Services. It makes the LaneNode, writes
// its status, and sends events. It reads nothing of other nodes.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/events"
)

var (
	laneNodes = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: v1alpha1.NodeResource}
	nodes    = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podsGVR  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	claims   = schema.GroupVersionResource{Group: resourceapi.GroupName, Version: "v1", Resource: "resourceclaims"}
	eventGVR = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// A Cluster is one node's view of the API server.
type Cluster struct {
	client dynamic.Interface
	node   string
	log    *slog.Logger

	laneNodes, nodes, pods cache.SharedIndexInformer
	services               cache.SharedIndexInformer // nil: not read

	mu   sync.Mutex
	said map[string]time.Time // when each event was sent, by its content
}

// New returns a Cluster for a node. If withServices is true, it also reads Services. It calls
// changed after each change of an object. changed must not block.
func New(client dynamic.Interface, node string, withServices bool, log *slog.Logger, changed func()) *Cluster {
	c := &Cluster{client: client, node: node, log: log, said: map[string]time.Time{}}
	self := fields.OneTermEqualSelector("metadata.name", node).String()
	c.laneNodes, c.nodes = c.informer(laneNodes, self), c.informer(nodes, self)
	c.pods = c.informer(podsGVR, fields.OneTermEqualSelector("spec.nodeName", node).String())
	if withServices {
		c.services = c.informer(services, "")
	}
	h := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, DeleteFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				changed()
			}
		},
	}
	for _, i := range c.informers() {
		_, _ = i.AddEventHandler(h) // only a stopped informer returns an error
	}
	return c
}

// informer returns an informer for the objects that a field selector selects; "" selects all. It
// keeps only the part of each object that the agent reads. If the function part cannot convert an
// object, it keeps the whole object.
func (c *Cluster) informer(gvr schema.GroupVersionResource, selector string) cache.SharedIndexInformer {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return c.client.Resource(gvr).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return c.client.Resource(gvr).Watch(ctx, o)
		},
	}
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, c.client),
		&unstructured.Unstructured{}, 0, cache.Indexers{})
	_ = i.SetTransform(func(o any) (any, error) { // no error before the informer starts
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil // it was converted before
		}
		if p, err := part(gvr, u); err == nil {
			return p, nil
		}
		return o, nil
	})
	return i
}

// Run watches until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range c.informers() {
		wg.Go(func() { i.RunWithContext(ctx) })
	}
	wg.Wait()
}

// Synced reports whether every watch has received its first complete list.
func (c *Cluster) Synced() bool {
	return !slices.ContainsFunc(c.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() })
}

func (c *Cluster) informers() []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{c.laneNodes, c.nodes, c.pods}
	if c.services != nil {
		all = append(all, c.services)
	}
	return all
}

// Node returns the node's labels and InternalIP. ok is false while the node is not known.
func (c *Cluster) Node() (labels map[string]string, address string, ok bool) {
	n := c.self()
	if n == nil {
		return nil, "", false
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return n.Labels, a.Address, true
		}
	}
	return n.Labels, "", true
}

// self returns the node, nil while it is not known.
func (c *Cluster) self() *corev1.Node {
	o, _, _ := c.nodes.GetStore().GetByKey(c.node)
	n, _ := o.(*corev1.Node)
	return n
}

// Runtime returns the node's container runtime and its version, for example "containerd://2.3.7".
// It returns "" while the node is not known.
func (c *Cluster) Runtime() string {
	if n := c.self(); n != nil {
		return n.Status.NodeInfo.ContainerRuntimeVersion
	}
	return ""
}

// Addresses returns the node's InternalIPs, IPv4 and IPv6. It returns none while the node is not
// known.
func (c *Cluster) Addresses() (out []netip.Addr) {
	n := c.self()
	if n == nil {
		return nil
	}
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			out = append(out, addr)
		}
	}
	return out
}

// Policy returns what the node's LaneNode has of its policy, nil if no policy selects the
// node. It returns false while that is not known: niclane-controller has not written it yet.
func (c *Cluster) Policy() (*v1alpha1.LanePolicy, bool, error) {
	o, _, _ := c.laneNodes.GetStore().GetByKey(c.node)
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, false, nil
	}
	spec, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	if !ok {
		return nil, false, nil
	}
	p, err := readSpec(spec)
	return p, true, err
}

// Removal reports whether the node's LaneNode says that niclane leaves the node, and in which
// generation. An agent of a release that cannot read the spec obeys too. known is false if there is
// no spec: it is not written yet, or the LaneNode was deleted, as at the end of an uninstallation.
func (c *Cluster) Removal() (generation int64, remove, known bool) {
	o, _, _ := c.laneNodes.GetStore().GetByKey(c.node)
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return 0, false, false
	}
	_, known, _ = unstructured.NestedFieldNoCopy(u.Object, "spec")
	remove, _, _ = unstructured.NestedBool(u.Object, "spec", "remove")
	return u.GetGeneration(), remove, known
}

// maxSpec is the largest spec in bytes that readSpec reads.
const maxSpec = 1 << 20

// readSpec reads a LaneNode's spec and refuses unknown fields: a controller of another release
// may write fields that this agent does not know. The policy's name and generation are
// returned with the error too.
func readSpec(spec any) (*v1alpha1.LanePolicy, error) {
	raw, err := json.Marshal(spec)
	var s v1alpha1.LaneNodeSpec
	if err == nil {
		_ = json.Unmarshal(raw, &s) // name and generation, if they are there
		err = params.StrictUpTo(raw, &s, maxSpec)
	}
	p := &v1alpha1.LanePolicy{}
	p.Name, p.Generation = s.Policy, s.PolicyGeneration
	p.Spec.Uplink, p.Spec.Classes = s.Uplink, s.Classes
	switch {
	case err != nil:
		return p, fmt.Errorf("policy %s: %w", p.Name, err)
	case p.Name == "":
		return nil, nil
	}
	return p, nil
}

// Pods returns the node's pods by NAMESPACE/NAME. They have only the fields that the agent reads.
// The caller must not change them.
func (c *Cluster) Pods() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, o := range c.pods.GetStore().List() {
		if p, ok := o.(*corev1.Pod); ok {
			out[p.Namespace+"/"+p.Name] = p
		}
	}
	return out
}

// Services returns all Services, none if they are not read. The caller must not change them.
func (c *Cluster) Services() (out []*corev1.Service) {
	if c.services == nil {
		return nil
	}
	for _, o := range c.services.GetStore().List() {
		if s, ok := o.(*corev1.Service); ok {
			out = append(out, s)
		}
	}
	return out
}

// Known returns a pod of the node from the cache, nil if the cache does not have it.
func (c *Cluster) Known(namespace, name, uid string) *corev1.Pod {
	o, _, _ := c.pods.GetStore().GetByKey(namespace + "/" + name)
	if p, ok := o.(*corev1.Pod); ok && called(p, uid) {
		return p
	}
	return nil
}

// Pod returns a pod of the node, from the cache or else from the API server.
func (c *Cluster) Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	if p := c.Known(namespace, name, uid); p != nil {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	u, err := c.client.Resource(podsGVR).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o, err := part(podsGVR, u)
	if err != nil {
		return nil, err
	}
	p := o.(*corev1.Pod)
	if !called(p, uid) {
		return nil, fmt.Errorf("pod %s/%s has the UID %s now, not %s", namespace, name, p.UID, uid)
	}
	return p, nil
}

// Claim returns a ResourceClaim (NAMESPACE/NAME) from the API server.
func (c *Cluster) Claim(ctx context.Context, claim string) (*resourceapi.ResourceClaim, error) {
	namespace, name, _ := strings.Cut(claim, "/")
	u, err := c.client.Resource(claims).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := &resourceapi.ResourceClaim{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// configHash is the annotation of a static pod with the UID that kubelet uses for it. The pod's
// object in the API server (the mirror pod) has another UID.
const configHash = "kubernetes.io/config.hash"

// SandboxUID returns the UID that kubelet and the runtime use for a pod.
func SandboxUID(p *corev1.Pod) string {
	if hash := p.Annotations[configHash]; hash != "" {
		return hash
	}
	return string(p.UID)
}

// called reports whether this is the pod's UID, in the API server or in kubelet.
func called(p *corev1.Pod, uid string) bool {
	return string(p.UID) == uid || p.Annotations[configHash] == uid
}

// MakeLaneNode makes the node's LaneNode, which the node owns, if there is none.
func (c *Cluster) MakeLaneNode(ctx context.Context) error {
	n := c.self()
	if n == nil {
		return errors.New("the node is not known yet")
	}
	if c.Made() {
		return nil
	}
	u := laneNode(c.node)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}})
	_, err := c.client.Resource(laneNodes).Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// writing is the longest time that a write of the status may take. A connection can hang.
const writing = 30 * time.Second

// manager owns the fields that the agent writes.
const manager = "niclane-agent"

func laneNode(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.NodeKind,
		"metadata": map[string]any{"name": name},
	}}
}

// Made reports whether the node's LaneNode exists.
func (c *Cluster) Made() bool {
	_, made, _ := c.laneNodes.GetStore().GetByKey(c.node)
	return made
}

// Told returns the status that the node's LaneNode has now, from an agent that ran before.
func (c *Cluster) Told() *v1alpha1.LaneNodeStatus {
	o, _, _ := c.laneNodes.GetStore().GetByKey(c.node)
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var n v1alpha1.LaneNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &n); err != nil {
		return nil // of another release
	}
	return &n.Status
}

// SetStatus writes the status of the node's LaneNode (server-side apply). It makes the
// LaneNode if it is not there.
func (c *Cluster) SetStatus(ctx context.Context, s *v1alpha1.LaneNodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, writing)
	defer cancel()
	if err := c.MakeLaneNode(ctx); err != nil {
		return err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return err
	}
	u := laneNode(c.node)
	u.Object["status"] = status
	_, err = c.client.Resource(laneNodes).ApplyStatus(ctx, c.node, u,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// Condition returns a condition. It keeps the old transition time if the status is the same.
func Condition(old []metav1.Condition, typ string, yes bool, reason, message string) metav1.Condition {
	n := metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now()}
	if yes {
		n.Status = metav1.ConditionTrue
	}
	if was := meta.FindStatusCondition(old, typ); was != nil && was.Status == n.Status {
		n.LastTransitionTime = was.LastTransitionTime
	}
	return n
}

// again is the shortest time between two equal events.
const again = 10 * time.Minute

// Event sends an event about an object: a pod, or the node if namespace is empty. The reason decides
// its type (package events). If it sent
// an equal event in the last 10 minutes (again), it does nothing.
func (c *Cluster) Event(ctx context.Context, kind, namespace, name, uid, reason, message string) {
	key := strings.Join([]string{kind, namespace, name, reason, message}, "\x00")
	c.mu.Lock()
	recent := time.Since(c.said[key]) < again
	if !recent {
		c.said[key] = time.Now()
	}
	for k, t := range c.said {
		if time.Since(t) > again {
			delete(c.said, k)
		}
	}
	c.mu.Unlock()
	if recent {
		return
	}
	if len(message) > 1024 { // limit in the API server's validation
		message = message[:1021] + "..."
	}
	in := namespace
	if in == "" {
		in = metav1.NamespaceDefault
	}
	now := metav1.Now()
	e := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + ".", Namespace: in},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name,
			UID: types.UID(uid)},
		Reason: reason, Message: message, Type: events.TypeOf(reason), Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "niclane-agent", Host: c.node},
		ReportingController: "niclane.dev/agent", ReportingInstance: c.node,
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err = c.client.Resource(eventGVR).Namespace(in).Create(ctx, &unstructured.Unstructured{Object: obj},
			metav1.CreateOptions{})
	}
	if err != nil {
		c.mu.Lock()
		delete(c.said, key) // it is sent when it happens again
		c.mu.Unlock()
		c.log.Warn("event could not be sent", "object", namespace+"/"+name, "reason", reason, "message", message,
			"error", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/policy"
)

var (
	policies = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: v1alpha1.Resource}
	laneNodes = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: v1alpha1.NodeResource}
	nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// manager owns the fields that the controller writes.
const manager = "niclane-controller"

const (
	settle = 200 * time.Millisecond // between a change and the reaction to it
	tick   = time.Minute            // between reactions without a change: agents fall silent
	retry  = 5 * time.Second        // between a round that failed and the next one
	// asking is the longest time that one write may take. A connection can hang.
	asking = 30 * time.Second
	// givers is how many LaneNodes are written at one time: a slow API server must not make a
	// rollout last for hours.
	givers = 16
)

// A controller writes LaneNodes and the status of policies.
type controller struct {
	client   dynamic.Interface
	recorder record.EventRecorder
	log      *slog.Logger

	policies, laneNodes, nodes cache.SharedIndexInformer
	classes                    cache.SharedIndexInformer // own DeviceClasses; nil: claims are not offered
	changed                    chan struct{}
	server                     discovery.ServerVersionInterface
	claims                     policy.Claims
	asked                      time.Time // when claims was read
	told                       map[types.UID]told
	// worked is when the last round ended, in ns since 1970; 0: not elected.
	worked atomic.Int64
}

// told is a policy's status that was written when the informer had the policy in this version.
type told struct {
	version string
	status  v1alpha1.LanePolicyStatus
}

func newRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceDefault)})
	return b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: manager})
}

// newController returns a controller. With claims, it also makes DeviceClasses.
func newController(client dynamic.Interface, meta metadata.Interface, server discovery.ServerVersionInterface,
	claims bool, recorder record.EventRecorder, log *slog.Logger) *controller {
	c := &controller{client: client, server: server, claims: policy.Claims{Off: !claims}, recorder: recorder, log: log,
		changed: make(chan struct{}, 1), told: map[types.UID]told{}}
	all := metav1.NamespaceAll
	objects := func(r schema.GroupVersionResource,
		narrow dynamicinformer.TweakListOptionsFunc) cache.SharedIndexInformer {
		return dynamicinformer.NewFilteredDynamicInformer(client, r, all, 0, cache.Indexers{}, narrow).Informer()
	}
	c.policies, c.laneNodes = objects(policies, nil), objects(laneNodes, nil)
	c.nodes = metadatainformer.NewFilteredMetadataInformer(meta, nodes, all, 0, cache.Indexers{}, nil).Informer()
	if claims {
		c.classes = objects(deviceClasses,
			func(o *metav1.ListOptions) { o.LabelSelector = ownLabel + "=" + ownValue })
	}
	_ = c.laneNodes.SetTransform(slim) // no error before the informer starts
	_ = c.nodes.SetTransform(slimNode)
	for _, i := range c.informers() {
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.wake() }, DeleteFunc: func(any) { c.wake() },
			UpdateFunc: func(before, after any) {
				if !same(before, after) {
					c.wake()
				}
			},
		})
	}
	return c
}

func (c *controller) informers() []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{c.policies, c.laneNodes, c.nodes}
	if c.classes != nil {
		all = append(all, c.classes)
	}
	return all
}

// slim keeps of a LaneNode what a rollout needs: thousands of them are in memory.
func slim(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // already done
	}
	n := &v1alpha1.LaneNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
		// An agent of another release wrote it: the node is there, and its state is not known.
		n = &v1alpha1.LaneNode{}
		n.CreationTimestamp = u.GetCreationTimestamp()
	}
	n.ObjectMeta = metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		Generation: u.GetGeneration(), CreationTimestamp: n.CreationTimestamp}
	if n.Spec != nil {
		n.Spec.Uplink, n.Spec.Classes = v1alpha1.Uplink{}, nil
	}
	n.Status.Devices, n.Status.Classes = nil, nil
	return n, nil
}

// slimNode keeps of a node its labels.
func slimNode(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.ObjectMeta = metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels}
	}
	return o, nil
}

// same reports whether a round has nothing to do after an update: an agent has only renewed its
// status, or kubelet its node's. A cluster of 5,000 nodes has 17 of each in a second.
func same(before, after any) bool {
	switch b := before.(type) {
	case *metav1.PartialObjectMetadata:
		a, ok := after.(*metav1.PartialObjectMetadata)
		return ok && maps.Equal(b.Labels, a.Labels)
	case *v1alpha1.LaneNode:
		a, ok := after.(*v1alpha1.LaneNode)
		if !ok || a.Status.Renewed.Sub(b.Status.Renewed.Time) > v1alpha1.Silence {
			return false // the agent was silent
		}
		x, y := b.Status, a.Status
		x.Renewed, y.Renewed = metav1.Time{}, metav1.Time{}
		return equality.Semantic.DeepEqual(b.Spec, a.Spec) && equality.Semantic.DeepEqual(x, y)
	}
	return false
}

func (c *controller) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// ServeHTTP answers /healthz: 503 if this instance is elected and its last round is long ago.
func (c *controller) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if last := c.worked.Load(); last != 0 && time.Since(time.Unix(0, last)) > 5*tick {
		http.Error(w, "no round ended since "+
			""+time.Unix(0, last).UTC().Format(time.RFC3339), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// run works until ctx ends.
func (c *controller) run(ctx context.Context) {
	c.worked.Store(time.Now().UnixNano())
	for _, i := range c.informers() {
		go i.RunWithContext(ctx)
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-ticker.C:
		}
		if slices.ContainsFunc(c.informers(), func(i cache.SharedIndexInformer) bool { return !i.HasSynced() }) {
			c.wake()
			continue
		}
		if err := c.round(ctx, time.Now()); err != nil && ctx.Err() == nil {
			c.log.Error("a round failed", "error", err)
			time.AfterFunc(retry, c.wake)
			continue
		}
		c.worked.Store(time.Now().UnixNano())
	}
}

// round makes the changes that can be made now, and writes the statuses of the policies.
func (c *controller) round(ctx context.Context, now time.Time) error {
	var all []policy.Candidate
	var objects []*unstructured.Unstructured
	for _, o := range c.policies.GetStore().List() {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || u.GetDeletionTimestamp() != nil {
			continue
		}
		all, objects = append(all, candidate(u)), append(objects, u)
	}
	if err := c.ask(now); err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	changes, statuses := policy.Roll(all, c.states(), c.claims, now)
	errs := []error{c.giveAll(ctx, changes)}
	for i := range statuses {
		if err := c.tell(ctx, objects[i], &statuses[i]); err != nil {
			errs = append(errs, fmt.Errorf("policy %s: status: %w", all[i].Name, err))
		}
	}
	if c.classes != nil {
		errs = append(errs, c.offer(ctx, all))
	}
	return errors.Join(errs...)
}

// giveAll makes changes, several at one time. A node that cannot be written does not keep the
// others waiting. After as many failures as givers, the API server is taken to be away, and the
// other changes wait for the next round.
func (c *controller) giveAll(ctx context.Context, changes []policy.Change) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	todo := make(chan policy.Change)
	for range min(givers, len(changes)) {
		wg.Go(func() {
			for ch := range todo {
				if err := c.give(ctx, ch); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("node %s: %w", ch.Node, err))
					mu.Unlock()
				}
			}
		})
	}
	for _, ch := range changes {
		mu.Lock()
		away := len(errs) >= givers
		mu.Unlock()
		if away || ctx.Err() != nil {
			break
		}
		todo <- ch
	}
	close(todo)
	wg.Wait()
	return errors.Join(errs...)
}

// ask asks the API server for its release, once in a tick: it can be upgraded.
func (c *controller) ask(now time.Time) error {
	if c.claims.Off || now.Sub(c.asked) < tick {
		return nil
	}
	info, err := c.server.ServerVersion()
	if err != nil {
		return err
	}
	is, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return err
	}
	c.asked, c.claims.Older = now, ""
	if is.LessThan(utilversion.MustParseGeneric(policy.LimitsSince)) {
		c.claims.Older = fmt.Sprintf("%d.%d", is.Major(), is.Minor())
	}
	return nil
}

// states returns the nodes by name.
func (c *controller) states() []policy.NodeState {
	var out []policy.NodeState
	for _, o := range c.nodes.GetStore().List() {
		m, ok := o.(*metav1.PartialObjectMetadata)
		if !ok {
			continue
		}
		s := policy.NodeState{Name: m.Name, Labels: m.Labels}
		if o, _, _ := c.laneNodes.GetStore().GetByKey(m.Name); o != nil {
			s.Lanes, _ = o.(*v1alpha1.LaneNode)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b policy.NodeState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// candidate reads a policy. It refuses unknown fields of the spec: an API server with the CRD of
// another release may take fields that this controller does not know. Selector and priority
// are read in any case.
func candidate(u *unstructured.Unstructured) policy.Candidate {
	p := &v1alpha1.LanePolicy{}
	p.Name, p.Generation, p.CreationTimestamp = u.GetName(), u.GetGeneration(), u.GetCreationTimestamp()
	raw, err := json.Marshal(u.Object["spec"])
	if err == nil {
		var part struct {
			NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
			Priority     int32                 `json:"priority"`
		}
		_ = json.Unmarshal(raw, &part)
		if err = params.StrictUpTo(raw, &p.Spec, maxSpec); err != nil {
			err = fmt.Errorf("spec: %w", err)
		}
		p.Spec.NodeSelector, p.Spec.Priority = part.NodeSelector, part.Priority
	}
	return policy.NewCandidate(p, err)
}

// maxSpec is the largest spec in bytes that candidate reads.
const maxSpec = 1 << 20

// give replaces the spec of a node's LaneNode. A LaneNode that is gone has no agent.
func (c *controller) give(ctx context.Context, ch policy.Change) error {
	patch, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/spec", "value": ch.Spec}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, err = c.client.Resource(laneNodes).Patch(ctx, ch.Node, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.log.Info("changed", "node", ch.Node, "policy", ch.Spec.Policy, "generation", ch.Spec.PolicyGeneration)
	}
	return err
}

// tell writes a policy's status if it has changed, and an event for each condition that has.
func (c *controller) tell(ctx context.Context, u *unstructured.Unstructured, is *v1alpha1.LanePolicyStatus) error {
	var was v1alpha1.LanePolicyStatus
	if old, ok := u.Object["status"].(map[string]any); ok {
		// A status of another release is written anew.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(old, &was)
	}
	if t, ok := c.told[u.GetUID()]; ok && t.version == u.GetResourceVersion() {
		was = t.status // the informer has not seen that write yet
	}
	var news []metav1.Condition
	for i := range is.Conditions {
		n := &is.Conditions[i]
		n.LastTransitionTime = metav1.Now()
		o := meta.FindStatusCondition(was.Conditions, n.Type)
		if o != nil && o.Status == n.Status {
			n.LastTransitionTime = o.LastTransitionTime
		}
		if o == nil || o.Status != n.Status || o.Reason != n.Reason {
			news = append(news, *n)
		}
	}
	if equality.Semantic.DeepEqual(was, *is) {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err != nil {
		return err
	}
	next := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
		"metadata": map[string]any{"name": u.GetName()}, "status": status}}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, err = c.client.Resource(policies).ApplyStatus(ctx, u.GetName(), next,
		metav1.ApplyOptions{FieldManager: manager, Force: true})
	if apierrors.IsNotFound(err) {
		return nil // it was deleted meanwhile
	}
	if err != nil {
		return err
	}
	c.told[u.GetUID()] = told{u.GetResourceVersion(), *is}
	for _, n := range news {
		c.recorder.Event(u, events.TypeOf(n.Reason), n.Reason, n.Message)
	}
	return nil
}

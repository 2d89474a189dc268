// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/kube"
)

// A publisher keeps the ResourceSlices of the node's pool as its devices are, also
// when somebody else changes or deletes them.
type publisher struct {
	Options
	client dynamic.NamespaceableResourceInterface
	known  cache.SharedIndexInformer
	seen   chan struct{}
	owner  *metav1.OwnerReference // the node, once it is known
	// asked and got are the devices that were written last, slice by slice, and what
	// the API server has made of them: it drops fields whose features are off.
	asked, got [][]resourceapi.Device
}

func newPublisher(o Options) *publisher {
	p := &publisher{Options: o, client: o.Client.Resource(slicesGVR), seen: make(chan struct{}, 1)}
	// as indexed by the API server (k8s.io/api/resource/v1: ResourceSliceSelectorDriver)
	ours := fields.Set{resourceapi.ResourceSliceSelectorDriver: DriverName, resourceapi.ResourceSliceSelectorNodeName: o.Node}
	p.known = kube.Informer(o.Client, slicesGVR, ours.String(), func(u *unstructured.Unstructured) (any, error) { return sliceOf(u) })
	look := func() {
		select {
		case p.seen <- struct{}{}:
		default: // it will anyway
		}
	}
	_, _ = p.known.AddEventHandler(cache.ResourceEventHandlerFuncs{ // an error would be of an informer that was stopped
		AddFunc: func(any) { look() }, UpdateFunc: func(any, any) { look() }, DeleteFunc: func(any) { look() },
	})
	return p
}

func sliceOf(u *unstructured.Unstructured) (*resourceapi.ResourceSlice, error) {
	s := &resourceapi.ResourceSlice{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		return nil, err
	}
	s.ManagedFields = nil
	return s, nil
}

func (p *publisher) run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.known.RunWithContext(ctx)
	}()
	defer func() { <-done }()
	if !cache.WaitForCacheSync(ctx.Done(), p.known.HasSynced) {
		return
	}
	for {
		now := p.Inventory.Now()
		var again <-chan time.Time
		if err := p.publish(ctx, Devices(now)); err != nil && ctx.Err() == nil {
			p.Log.ErrorContext(ctx, "devices could not be published", "error", err, "again", retry)
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Inventory.Changed(now.Version):
		case <-p.seen:
		case <-again:
		}
	}
}

// publish makes the slices as the devices are, unless they are so. Those of an older
// generation are nobody's any more as soon as there is one of the next.
func (p *publisher) publish(ctx context.Context, devices []resourceapi.Device) error {
	parts := divided(devices)
	have, generation := p.have()
	if p.published(parts, have) {
		return nil
	}
	if err := p.findOwner(ctx); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for i := range parts {
		wanted[p.name(i)] = true
	}
	for name, s := range have {
		if wanted[name] {
			continue
		}
		err := p.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	p.asked, p.got = parts, make([][]resourceapi.Device, len(parts))
	for i, part := range parts {
		stored, err := p.write(ctx, have[p.name(i)], &resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: p.name(i), OwnerReferences: []metav1.OwnerReference{*p.owner}},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: DriverName, NodeName: &p.Node, Devices: part,
				Pool: resourceapi.ResourcePool{Name: p.Node, Generation: generation + 1, ResourceSliceCount: int64(len(parts))},
			},
		})
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // what is known is old: it is told soon what is there
		}
		if err != nil {
			return err
		}
		p.got[i] = stored.Spec.Devices
		p.sayDropped(ctx, part, stored.Spec.Devices)
	}
	return nil
}

// divided are devices in slices of as many as one may have; none are one without: a
// pool that is there, and empty.
func divided(devices []resourceapi.Device) (out [][]resourceapi.Device) {
	for len(devices) > resourceapi.ResourceSliceMaxDevices {
		out = append(out, devices[:resourceapi.ResourceSliceMaxDevices])
		devices = devices[resourceapi.ResourceSliceMaxDevices:]
	}
	return append(out, devices)
}

// have are the node's slices by name, and their newest generation.
func (p *publisher) have() (have map[string]*resourceapi.ResourceSlice, generation int64) {
	have = map[string]*resourceapi.ResourceSlice{}
	for _, o := range p.known.GetStore().List() {
		if s, ok := o.(*resourceapi.ResourceSlice); ok {
			have[s.Name], generation = s, max(generation, s.Spec.Pool.Generation)
		}
	}
	return have, generation
}

// published reports whether the slices have these devices.
func (p *publisher) published(parts [][]resourceapi.Device, have map[string]*resourceapi.ResourceSlice) bool {
	if len(have) != len(parts) {
		return false
	}
	for i, part := range parts {
		s := have[p.name(i)]
		if s == nil || s.Spec.Pool.ResourceSliceCount != int64(len(parts)) || s.Spec.Pool.Generation != have[p.name(0)].Spec.Pool.Generation {
			return false
		}
		made := len(p.asked) == len(parts) && equality.Semantic.DeepEqual(p.asked[i], part) && equality.Semantic.DeepEqual(p.got[i], s.Spec.Devices)
		if !made && !equality.Semantic.DeepEqual(s.Spec.Devices, part) {
			return false
		}
	}
	return true
}

// name of a slice is always the same: who makes it twice makes it once. The scheduler
// takes devices by the order of these names.
func (p *publisher) name(i int) string {
	const most = 253 // RFC 1123 subdomain, as all names of ResourceSlices
	name := fmt.Sprintf("%05x-%s-%s", i, DriverName, p.Node)
	if len(name) > most {
		name = fmt.Sprintf("%05x-%s-%x", i, DriverName, sha256.Sum256([]byte(p.Node)))
	}
	return name
}

// findOwner finds the node, with which the slices go.
func (p *publisher) findOwner(ctx context.Context) error {
	if p.owner != nil {
		return nil
	}
	n, err := p.Client.Resource(nodesGVR).Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	p.owner = &metav1.OwnerReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: p.Node, UID: n.GetUID(), Controller: ptr.To(true)}
	return nil
}

// write makes a slice, or changes the one that there is.
func (p *publisher) write(ctx context.Context, old, s *resourceapi.ResourceSlice) (*resourceapi.ResourceSlice, error) {
	if old != nil {
		s.UID, s.ResourceVersion = old.UID, old.ResourceVersion
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	if old != nil {
		u, err = p.client.Update(ctx, u, metav1.UpdateOptions{})
	} else {
		u, err = p.client.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	return sliceOf(u)
}

// sayDropped says what the cluster does not take. The other devices are kept:
// exclusive classes need none of it.
func (p *publisher) sayDropped(ctx context.Context, asked, got []resourceapi.Device) {
	for i := range asked {
		if asked[i].AllowMultipleAllocations != nil && (i >= len(got) || got[i].AllowMultipleAllocations == nil) {
			p.Log.ErrorContext(ctx, "shared classes cannot be offered as claims on this cluster: it lacks the feature DRAConsumableCapacity (on by default from 1.36)", "device", asked[i].Name)
			return
		}
	}
}

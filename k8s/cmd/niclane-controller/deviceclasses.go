// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
)

var deviceClasses = resourceapi.SchemeGroupVersion.WithResource("deviceclasses")

// ownLabel marks the DeviceClasses that the controller makes.
const ownLabel, ownValue = "app.kubernetes.io/managed-by", manager

// deviceClass returns the DeviceClass of a class that is offered as claims: CLASS.niclane.dev. From
// Kubernetes 1.36, a pod can also ask for it by limits, as for an extended resource
// (DRAExtendedResource). An API server without that feature drops the resource's name.
func deviceClass(class string) *resourceapi.DeviceClass {
	d := &resourceapi.DeviceClass{TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(),
		Kind: "DeviceClass"}}
	d.Name, d.Labels = class+"."+v1alpha1.Group, map[string]string{ownLabel: ownValue}
	d.Spec.ExtendedResourceName = ptr.To(v1alpha1.Group + "/" + class)
	d.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
		"device.driver == %q && device.attributes[%[1]q].class == %q", v1alpha1.Group, class)}}}
	return d
}

// offer makes the DeviceClasses of all policies' classes, and deletes those of classes that no
// policy has any more.
func (c *controller) offer(ctx context.Context, all []policy.Candidate) error {
	want := map[string]*resourceapi.DeviceClass{}
	for _, p := range all {
		if p.Err != nil {
			return nil // the policy may have classes that cannot be read
		}
		for i := range p.Spec.Classes {
			if cl := &p.Spec.Classes[i]; policy.Offered(cl) == v1alpha1.OfferedAsClaim {
				d := deviceClass(cl.Name)
				want[d.Name] = d
			}
		}
	}
	have := map[string]*resourceapi.DeviceClass{}
	for _, o := range c.classes.GetStore().List() {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		d := &resourceapi.DeviceClass{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
			return err
		}
		have[d.Name] = d
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if d := have[name]; d != nil && equality.Semantic.DeepEqual(d.Spec.Selectors, want[name].Spec.Selectors) {
			continue // an API server without the feature has no extendedResourceName
		}
		if err := c.apply(ctx, want[name]); err != nil {
			return fmt.Errorf("DeviceClass %s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] != nil {
			continue
		}
		err := c.client.Resource(deviceClasses).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("DeviceClass %s: %w", name, err)
		}
	}
	return nil
}

// apply writes a DeviceClass. It does not take over one that another program has made.
func (c *controller) apply(ctx context.Context, d *resourceapi.DeviceClass) error {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: m}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	_, err = c.client.Resource(deviceClasses).Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	old, err := c.client.Resource(deviceClasses).Get(ctx, d.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if old.GetLabels()[ownLabel] != ownValue {
		return fmt.Errorf("exists without the label %s: %s: delete it, or name the class "+
			"differently", ownLabel, ownValue)
	}
	u.SetResourceVersion(old.GetResourceVersion())
	_, err = c.client.Resource(deviceClasses).Update(ctx, u, metav1.UpdateOptions{FieldManager: manager})
	return err
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Apply applies the objects of a YAML text, as kubectl apply --server-side does. Objects without a
// namespace get the namespace "default".
func (c *Cluster) Apply(text string) error {
	return c.each(text, func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := objects.Apply(c.ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	})
}

// Delete deletes the objects of a YAML text, and waits until they no longer exist.
func (c *Cluster) Delete(text string) error {
	return c.each(text, func(objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		err := objects.Delete(c.ctx, o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return until(c.ctx, time.Minute, "it is gone", func(ctx context.Context) (bool, string) {
			_, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	})
}

func (c *Cluster) each(text string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue // there is no object between two separators (---)
		}
		objects, err := c.objects(o)
		if err == nil {
			err = do(objects, o)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// objects returns a client for objects of the same kind and namespace as o.
func (c *Cluster) objects(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	// The API server may need a moment before it serves the objects of a new CRD.
	err := until(c.ctx, 10*time.Second, "the API server knows the kind", func(context.Context) (bool, string) {
		groups, err := restmapper.GetAPIGroupResources(c.Client.Discovery())
		if err == nil {
			mapping, err = restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
		}
		return err == nil, fmt.Sprint(err)
	})
	if err != nil {
		return nil, err
	}
	resource := c.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource, nil
	}
	if o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	return resource.Namespace(o.GetNamespace()), nil
}

// UntilRunning waits until a pod of the namespace "default" is ready, and returns the pod.
func (c *Cluster) UntilRunning(name string) *corev1.Pod {
	c.t.Helper()
	var pod *corev1.Pod
	c.Until(time.Minute, "pod "+name+" is running", func(ctx context.Context) (bool, string) {
		var err error
		pod, err = c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return true, ""
			}
		}
		return false, c.describe(ctx, pod)
	})
	return pod
}

// describe returns a text with the state of a pod and the last event about it.
func (c *Cluster) describe(ctx context.Context, pod *corev1.Pod) string {
	text := fmt.Sprintf("%s %s %s", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	events, err := c.Client.CoreV1().Events(pod.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err == nil && len(events.Items) > 0 {
		last := events.Items[len(events.Items)-1]
		text += fmt.Sprintf("; %s: %s", last.Reason, last.Message)
	}
	return text
}

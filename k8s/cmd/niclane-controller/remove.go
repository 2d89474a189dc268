// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A remover takes niclane off all nodes.
type remover struct {
	objects    dynamic.Interface
	typed      kubernetes.Interface
	namespace  string
	deployment string        // the controller's
	claims     bool          // the controller has made DeviceClasses
	patience   time.Duration // for the nodes
	log        *slog.Logger
}

func remove(ctx context.Context, config *rest.Config, r *remover) error {
	var err error
	if r.objects, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if r.typed, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	return r.run(ctx)
}

// run stops the controller, which would undo the marks, marks every LaneNode, and waits until each
// agent says that its node has nothing of niclane. The error names the nodes that have not.
func (r *remover) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if err := r.stopController(ctx); err != nil {
		return err
	}
	if err := r.tellPolicies(ctx); err != nil {
		return err
	}
	if r.claims {
		if err := r.deleteClasses(ctx); err != nil {
			return err
		}
	}
	return r.clear(ctx)
}

const polls = time.Second // between two looks at the controller's pods

// stopController scales the controller's Deployment to 0 and waits until no pod of it is left.
// Scaled up again, the controller ends the removal.
func (r *remover) stopController(ctx context.Context) error {
	all := r.typed.AppsV1().Deployments(r.namespace)
	d, err := all.Get(ctx, r.deployment, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.log.Info("no controller", "deployment", r.deployment)
		return nil
	}
	if err != nil {
		return fmt.Errorf("deployment %s: %w", r.deployment, err)
	}
	if _, err := all.Patch(ctx, r.deployment, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`),
		metav1.PatchOptions{FieldManager: manager}, "scale"); err != nil {
		return fmt.Errorf("deployment %s: scale to 0: %w", r.deployment, err)
	}
	var left []string
	err = wait.PollUntilContextCancel(ctx, polls, true, func(ctx context.Context) (bool, error) {
		list, err := r.typed.CoreV1().Pods(r.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		if err != nil {
			return false, err
		}
		left = nil
		for i := range list.Items {
			if p := &list.Items[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				left = append(left, p.Name+" on "+p.Spec.NodeName)
			}
		}
		return len(left) == 0, nil
	})
	if err != nil && len(left) > 0 {
		return fmt.Errorf("the controller does not end: %s: delete these pods, with --force if their node is gone, "+
			"and uninstall again", strings.Join(left, ", "))
	}
	if err == nil {
		r.log.Info("the controller has ended")
	}
	return err
}

// deleteClasses deletes the DeviceClasses that the controller has made.
func (r *remover) deleteClasses(ctx context.Context) error {
	err := r.objects.Resource(deviceClasses).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: ownLabel + "=" + ownValue})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("DeviceClasses: %w", err)
	}
	return nil
}

// tellPolicies writes into each policy's status that no node follows it any more.
func (r *remover) tellPolicies(ctx context.Context) error {
	list, err := r.objects.Resource(policies).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.LanePolicyStatus{
			ObservedGeneration: u.GetGeneration(),
			Conditions: []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonUninstalled, Message: "niclane was removed from the cluster",
				LastTransitionTime: metav1.Now(), ObservedGeneration: u.GetGeneration()}},
		})
		if err != nil {
			return err
		}
		next := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
			"metadata": map[string]any{"name": u.GetName()}, "status": status}}
		if _, err := r.objects.Resource(policies).ApplyStatus(ctx, u.GetName(), next,
			metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("policy %s: status: %w", u.GetName(), err)
		}
	}
	return nil
}

// clear marks all LaneNodes, also those that appear meanwhile, and waits until their agents have
// obeyed.
func (r *remover) clear(ctx context.Context) error {
	if _, err := r.objects.Resource(laneNodes).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		return nil // the definition is not there either
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(r.objects, laneNodes, metav1.NamespaceAll, 0,
		cache.Indexers{}, nil).Informer()
	_ = informer.SetTransform(slim) // no error before the informer starts
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { wake() },
		UpdateFunc: func(_, _ any) { wake() }, DeleteFunc: func(any) { wake() }})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the API server does not list LaneNodes")
	}
	said, told := -1, map[string]bool{}
	for {
		var left []string
		total := 0
		for _, o := range informer.GetStore().List() {
			n, ok := o.(*v1alpha1.LaneNode)
			if !ok {
				continue
			}
			total++
			if n.Spec == nil || !n.Spec.Remove {
				if err := r.mark(ctx, n); err != nil && ctx.Err() == nil {
					return fmt.Errorf("LaneNode %s: %w", n.Name, err)
				}
			}
			if why := unclean(n); why != "" {
				left = append(left, n.Name+": "+why)
			} else if m := removed(n).Message; strings.Contains(m, "pod") && !told[n.Name] {
				told[n.Name] = true
				r.log.Warn(m, "node", n.Name)
			}
		}
		if len(left) != said {
			said = len(left)
			r.log.Info("nodes", "clean", total-len(left), "of", total)
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return r.unfinished(left, total)
		case <-changed:
		}
	}
}

// mark writes into a LaneNode that niclane leaves the node.
func (r *remover) mark(ctx context.Context, n *v1alpha1.LaneNode) error {
	spec := map[string]any{"remove": true}
	if n.Spec == nil {
		spec["policy"] = "" // the schema needs it
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = r.objects.Resource(laneNodes).Patch(ctx, n.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func removed(n *v1alpha1.LaneNode) *metav1.Condition {
	return meta.FindStatusCondition(n.Status.Conditions, v1alpha1.Removed)
}

// unclean says why a node still has something of niclane, "" if it has nothing.
func unclean(n *v1alpha1.LaneNode) string {
	c := removed(n)
	switch {
	case n.Spec == nil || !n.Spec.Remove || c == nil || c.ObservedGeneration != n.Generation:
		if n.Status.Renewed.IsZero() {
			return "its agent has never answered"
		}
		return "its agent does not answer, the last time at " + n.Status.Renewed.UTC().Format(time.RFC3339)
	case c.Status != metav1.ConditionTrue:
		return c.Message
	}
	return ""
}

// unfinished is the error that names the nodes that are left.
func (r *remover) unfinished(left []string, total int) error {
	const most = 50
	slices.Sort(left)
	count, more := len(left), ""
	if count > most {
		left, more = left[:most], fmt.Sprintf("\n  and %d more", count-most)
	}
	return fmt.Errorf("in %v, niclane has not left %d of %d nodes:\n  %s%s\n"+
		"All other nodes are clean. Bring the agents of these nodes back, and uninstall again. helm uninstall "+
		"--no-hooks leaves these nodes as they are; docs/how-to/kubernetes-remove.md says what is then left on them",
		r.patience, count, total, strings.Join(left, "\n  "), more)
}

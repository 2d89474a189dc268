// SPDX-License-Identifier: Apache-2.0

// Package policy turns LanePolicies into one lanes file for one node. It decides which policy
// is the node's, which lanes its classes become, and which pods are their members. If pods
// are in lanes that a new policy would remove, it decides which changes must wait. It is
// pure: it reads nothing and changes nothing.
package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// Choose returns the policy of a node with these labels: the one with the highest priority
// among those that select it, nil if none does. It returns an error if two have that priority
// (the error names both), or if a selector is invalid.
func Choose(all []*v1alpha1.LanePolicy, node map[string]string) (*v1alpha1.LanePolicy, error) {
	var best []*v1alpha1.LanePolicy
	for _, p := range all {
		yes, err := selects(p, node)
		switch {
		case err != nil:
			return nil, err
		case !yes:
		case len(best) == 0 || p.Spec.Priority == best[0].Spec.Priority:
			best = append(best, p)
		case p.Spec.Priority > best[0].Spec.Priority:
			best = []*v1alpha1.LanePolicy{p}
		}
	}
	if len(best) > 1 {
		var names []string
		for _, p := range best {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the policies %s select this node with the same priority, %d: give one of them a "+
			"higher priority, or let it select other nodes",
			strings.Join(names, ", "), best[0].Spec.Priority)
	}
	if len(best) == 0 {
		return nil, nil
	}
	return best[0], nil
}

func selects(p *v1alpha1.LanePolicy, node map[string]string) (bool, error) {
	if p.Spec.NodeSelector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if err != nil {
		return false, fmt.Errorf("policy %s: nodeSelector: %w", p.Name, err)
	}
	return s.Matches(labels.Set(node)), nil
}

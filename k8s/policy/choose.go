// SPDX-License-Identifier: Apache-2.0

// Package policy turns LanePolicies into one lanes file for one node. It decides which policy
// is the node's, which nodes get a change of a policy next, which lanes the policy's classes
// become, and which pods are their members. If pods are in lanes that a new policy would
// remove, it decides which changes must wait. It is pure: it reads nothing and changes
// nothing.
package policy

import (
	"cmp"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A Candidate is a policy that may be a node's.
type Candidate struct {
	*v1alpha1.LanePolicy
	// Err says why the policy cannot be read, nil if it can.
	Err      error
	selector labels.Selector // nil: cannot be read
}

// NewCandidate reads the selector of a policy. err says why the rest of it cannot be read.
func NewCandidate(p *v1alpha1.LanePolicy, err error) Candidate {
	c := Candidate{LanePolicy: p, Err: err, selector: labels.Everything()}
	if p.Spec.NodeSelector == nil {
		return c
	}
	s, serr := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if serr != nil {
		c.selector, c.Err = nil, errors.Join(err, fmt.Errorf("spec.nodeSelector: %w", serr))
		return c
	}
	c.selector = s
	return c
}

// selects reports whether the policy selects a node that follows the policy named current. If
// the selector cannot be read, the nodes that the policy had stay its own.
func (c *Candidate) selects(node map[string]string, current string) bool {
	if c.selector == nil {
		return c.Name == current
	}
	return c.selector.Matches(labels.Set(node))
}

// Choose returns the index of the policy of a node with these labels, -1 if none selects it:
// the one with the highest priority, and of several with that priority the oldest. conflicted
// are the others with that priority. current is the policy that the node follows now.
func Choose(all []Candidate, node map[string]string, current string) (chosen int, conflicted []int) {
	chosen = -1
	for i := range all {
		if !all[i].selects(node, current) {
			continue
		}
		switch {
		case chosen < 0 || all[i].Spec.Priority > all[chosen].Spec.Priority:
			chosen, conflicted = i, nil
		case all[i].Spec.Priority < all[chosen].Spec.Priority:
		case older(all[i].LanePolicy, all[chosen].LanePolicy):
			chosen, conflicted = i, append(conflicted, chosen)
		default:
			conflicted = append(conflicted, i)
		}
	}
	return chosen, conflicted
}

// older reports whether a goes before b.
func older(a, b *v1alpha1.LanePolicy) bool { return compareAge(a, b) < 0 }

// compareAge orders policies by their creation, and those of the same second by name.
func compareAge(a, b *v1alpha1.LanePolicy) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

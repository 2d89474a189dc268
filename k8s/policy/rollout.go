// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A NodeState is a node of the cluster, as Roll needs it.
type NodeState struct {
	Name   string
	Labels map[string]string
	// Lanes is the node's LaneNode, nil if no agent has made it yet.
	Lanes *v1alpha1.LaneNode
}

// A Change is the next spec of a node's LaneNode.
type Change struct {
	Node string
	Spec v1alpha1.LaneNodeSpec
}

// Roll returns the changes that can be made now, and the status of each policy, in the order
// of all. A policy gives a change to no more nodes at one time than its rollout allows. It
// stops while a node refuses the change, does not hold its lanes or cannot offer them, while it
// is paused, and while it is refused: it cannot be read, or an older policy has one of its
// classes otherwise.
func Roll(all []Candidate, nodes []NodeState, claims Claims, now time.Time) (
	[]Change, []v1alpha1.LanePolicyStatus) {
	groups := make([]group, len(all))
	conflicts := classConflicts(all)
	for i := range all {
		groups[i].Candidate, groups[i].classes, groups[i].claims = &all[i], conflicts[i], claims
	}
	var changes []Change
	for i := range nodes {
		n := &nodes[i]
		current := ""
		if n.Lanes != nil && n.Lanes.Spec != nil {
			current = n.Lanes.Spec.Policy
		}
		chosen, conflicted := Choose(all, n.Labels, current)
		for _, j := range conflicted {
			groups[j].conflict(all[chosen].Name)
		}
		switch {
		case chosen >= 0:
			groups[chosen].add(n, now)
		case n.Lanes != nil && (n.Lanes.Spec == nil || n.Lanes.Spec.Remove || current != ""):
			changes = append(changes, Change{Node: n.Name})
		}
	}
	statuses := make([]v1alpha1.LanePolicyStatus, len(all))
	for i := range groups {
		changes = append(changes, groups[i].changes()...)
		statuses[i] = groups[i].status()
	}
	return changes, statuses
}

// A group is a policy with the nodes that follow it.
type group struct {
	*Candidate
	nodes, updated, applied, busy int
	behind                        []*NodeState // do not have the generation yet
	away                          []*NodeState // the same, and their agents do not answer
	silent                        []string
	waiting, failed               []string // nodes with the reason
	conflicts                     int
	winner                        string
	classes                       string // why the policy is refused: an older one has a class otherwise
	claims                        Claims
}

func (g *group) conflict(winner string) {
	g.conflicts++
	g.winner = winner
}

// add counts a node, by what its agent has written.
func (g *group) add(n *NodeState, now time.Time) {
	g.nodes++
	if n.Lanes == nil {
		g.silent = append(g.silent, n.Name)
		return
	}
	st := &n.Lanes.Status
	silent := now.Sub(later(st.Renewed.Time, n.Lanes.CreationTimestamp.Time)) > v1alpha1.Silence
	if silent {
		g.silent = append(g.silent, n.Name)
	}
	// A mark Remove is of an uninstallation that was given up: a controller works again.
	if s := n.Lanes.Spec; s == nil || s.Remove || s.Policy != g.Name || s.PolicyGeneration != g.Generation {
		if silent {
			g.away = append(g.away, n)
		} else {
			g.behind = append(g.behind, n)
		}
		return
	}
	g.updated++
	applied := meta.FindStatusCondition(st.Conditions, v1alpha1.Applied)
	healthy := meta.FindStatusCondition(st.Conditions, v1alpha1.Healthy)
	offered := meta.FindStatusCondition(st.Conditions, v1alpha1.Offered)
	switch {
	case silent:
	case st.Policy != g.Name || st.PolicyGeneration != g.Generation || applied == nil:
		g.busy++
	case applied.Status != metav1.ConditionTrue && applied.Reason == v1alpha1.ReasonWaitsForPods:
		g.waiting = append(g.waiting, n.Name+": "+applied.Message)
	case applied.Status != metav1.ConditionTrue:
		g.failed = append(g.failed, n.Name+": "+applied.Message)
	case healthy != nil && healthy.Status != metav1.ConditionTrue:
		g.applied++
		g.failed = append(g.failed, n.Name+": "+healthy.Message)
	case offered != nil && offered.Status != metav1.ConditionTrue:
		g.applied++
		g.failed = append(g.failed, n.Name+": "+offered.Message)
	default:
		g.applied++
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// changes returns the nodes that get the policy's generation now. Nodes whose agents do not
// answer get it too: it is there when they are back.
func (g *group) changes() (out []Change) {
	if g.Err != nil || g.classes != "" || g.paused() || len(g.failed) > 0 {
		return nil
	}
	slices.SortFunc(g.behind, func(a, b *NodeState) int { return cmp.Compare(a.Name, b.Name) })
	free := max(0, g.most()-g.busy)
	next := slices.Concat(g.away, g.behind[:min(free, len(g.behind))])
	for _, n := range next {
		out = append(out, Change{Node: n.Name, Spec: v1alpha1.LaneNodeSpec{Policy: g.Name,
			PolicyGeneration: g.Generation, Uplink: g.Spec.Uplink, Classes: g.Spec.Classes}})
	}
	return out
}

func (g *group) paused() bool { return g.Spec.Rollout != nil && g.Spec.Rollout.Paused }

// most returns how many nodes may be busy with a change at one time, at least 1.
func (g *group) most() int {
	limit := intstr.FromString(v1alpha1.DefaultMaxUnavailable)
	if r := g.Spec.Rollout; r != nil && r.MaxUnavailable != nil {
		limit = *r.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, g.nodes, true)
	if err != nil {
		return 1 // the API server refuses such a value
	}
	return max(1, n)
}

// status returns the policy's status, with conditions without times.
func (g *group) status() v1alpha1.LanePolicyStatus {
	s := v1alpha1.LanePolicyStatus{ObservedGeneration: g.Generation, Nodes: g.nodes, Updated: g.updated,
		Applied: g.applied, Failed: len(g.failed), Silent: len(g.silent)}
	condition := func(typ, reason, message string) {
		status := metav1.ConditionFalse
		switch reason {
		case v1alpha1.ReasonAccepted, v1alpha1.ReasonClaimsOnly, v1alpha1.ReasonClaimsOff, v1alpha1.ReasonNodesReady:
			status = metav1.ConditionTrue
		}
		s.Conditions = append(s.Conditions, metav1.Condition{Type: typ, Status: status, Reason: reason,
			Message: message, ObservedGeneration: g.Generation})
	}
	switch {
	case g.Err != nil:
		condition(v1alpha1.Accepted, v1alpha1.ReasonInvalid, limited(g.Err.Error()))
	case g.classes != "":
		condition(v1alpha1.Accepted, v1alpha1.ReasonClassConflicted, limited(g.classes))
	case g.conflicts > 0:
		condition(v1alpha1.Accepted, v1alpha1.ReasonConflicted, fmt.Sprintf("policy %s has the same priority, %d, "+
			"and is older: it goes first on %s (give one policy a higher priority, or let it select other nodes)",
			g.winner, g.Spec.Priority, count(g.conflicts, "node")))
	default:
		reason, message := g.claims.serve(g.Spec.Classes)
		condition(v1alpha1.Accepted, reason, limited(message))
	}
	progress := fmt.Sprintf("generation %d is applied on %d of %s", g.Generation, g.applied, count(g.nodes, "node"))
	switch {
	case g.Err != nil:
		condition(v1alpha1.Ready, v1alpha1.ReasonInvalid, "the policy cannot be read: its nodes stay as they are")
	case g.classes != "":
		condition(v1alpha1.Ready, v1alpha1.ReasonClassConflicted, "the policy is refused: its nodes stay as they are")
	case g.nodes == 0:
		condition(v1alpha1.Ready, v1alpha1.ReasonNoNodes, "no node follows the policy")
	case len(g.failed) > 0:
		condition(v1alpha1.Ready, v1alpha1.ReasonNodesFailed, limited(progress+". Failed: "+some(g.failed)))
	case g.paused() && g.updated < g.nodes:
		condition(v1alpha1.Ready, v1alpha1.ReasonPaused, progress+". The rollout is paused.")
	case g.applied+len(g.silent) < g.nodes:
		if len(g.waiting) > 0 {
			progress += ". Wait for pods: " + some(g.waiting)
		}
		condition(v1alpha1.Ready, v1alpha1.ReasonProgressing, limited(progress))
	case len(g.silent) > 0:
		condition(v1alpha1.Ready, v1alpha1.ReasonAgentsSilent,
			limited(progress+". No agent answers on: "+some(g.silent)))
	default:
		condition(v1alpha1.Ready, v1alpha1.ReasonNodesReady, progress)
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// some names the first nodes of a list: a status must not grow with the number of nodes.
func some(list []string) string {
	const most = 5
	slices.Sort(list)
	if n := len(list); n > most {
		return fmt.Sprintf("%s; and %d more", strings.Join(list[:most], "; "), n-most)
	}
	return strings.Join(list, "; ")
}

// limited shortens a message to what a condition takes comfortably.
func limited(s string) string {
	const most = 2048
	if len(s) > most {
		return s[:most-3] + "..."
	}
	return s
}

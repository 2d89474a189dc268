// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/k8s/agent/kube"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/dra"
	"github.com/niclane/niclane/k8s/events"
	"github.com/niclane/niclane/k8s/networks/reach"
	"github.com/niclane/niclane/k8s/pods/podresources"
)

// A removal is how far niclane has left the node, because its LaneNode says so (spec.remove).
type removal struct {
	mu         sync.Mutex
	wanted     bool
	generation int64 // of the LaneNode that wants it
	// err says why the agent's part is not done: lanes, limits of pods, files.
	err error
	// claimers are the pods that have claims of niclane.
	claimers []string
	// unchained says that niclane-cni-install has removed niclane-cni; chain says why it cannot.
	unchained bool
	chain     string
}

// errBegun is the removal's error before its first attempt has ended.
var errBegun = errors.New("the removal has begun")

// want sets whether the node's LaneNode wants niclane removed.
func (r *removal) want(wanted bool, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = generation
	if r.wanted == wanted {
		return
	}
	r.wanted, r.err, r.unchained, r.chain = wanted, errBegun, false, ""
}

// done reports whether the agent's own part is done.
func (r *removal) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted && r.err == nil
}

// installer takes a report of niclane-cni-install, and returns whether niclane-cni must be removed.
// fresh says that the report is news.
func (r *removal) installer(report *cni.Request) (remove, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh = r.unchained != report.Removed || r.chain != report.Reason
	r.unchained, r.chain = report.Removed, report.Reason
	return r.wanted, fresh
}

// condition returns the LaneNode's condition Removed. chained says that niclane-cni-install has to
// remove niclane-cni.
func (r *removal) condition(chained bool) (generation int64, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case errors.Is(r.err, errBegun):
		return r.generation, v1alpha1.ReasonRemoving, r.err.Error()
	case r.err != nil:
		return r.generation, v1alpha1.ReasonRemoveFailed, r.err.Error()
	case chained && r.chain != "":
		return r.generation, v1alpha1.ReasonRemoveFailed, "niclane-cni: " + r.chain
	case chained && !r.unchained:
		return r.generation, v1alpha1.ReasonRemoving,
			"niclane-cni-install, the agent's neighbour, has not removed niclane-cni yet"
	}
	message = "the node has nothing of niclane any more"
	if n := len(r.claimers); n > 0 {
		const most = 5
		message += ". " + needsDriver + ": " + strings.Join(r.claimers[:min(n, most)], ", ")
		if n > most {
			message += fmt.Sprintf(" and %d more", n-most)
		}
	}
	return r.generation, v1alpha1.ReasonNodeIsClean, message
}

// leaves reports whether niclane leaves the node, and by which generation of its LaneNode. If the
// LaneNode says nothing, because it was deleted, what it said last holds.
func (a *Agent) leaves() (generation int64, leave bool) {
	generation, leave, known := a.cluster.Removal()
	if known {
		return generation, leave
	}
	a.removal.mu.Lock()
	defer a.removal.mu.Unlock()
	return a.removal.generation, a.removal.wanted
}

// remove takes what the agent has made off the node: lanes, limits of pods, and files. It can be
// called again.
func (a *Agent) remove(ctx context.Context, generation int64) {
	a.removal.want(true, generation)
	err := a.lanes.Remove(ctx)
	if err != nil {
		err = fmt.Errorf("lanes: %w", err)
	}
	claimers, kerr := a.claimers(ctx)
	if kerr != nil { // this is only for a message
		a.o.Log.Warn("pods with claims are not known", "error", kerr)
	}
	err = errors.Join(err, reach.Unlimit(), cni.RemovePods(a.o.Socket))
	a.removal.mu.Lock()
	a.removal.err, a.removal.claimers = err, claimers
	a.removal.mu.Unlock()
	wake(a.changed)
}

// needsDriver is the advice about pods that have claims when niclane leaves their node.
const needsDriver = "kubelet ends a pod with a claim only while the claim's driver runs; without niclane, " +
	"kubectl delete pod --force ends it"

// claimers returns the pods that have claims of niclane, and sends an event about each.
func (a *Agent) claimers(ctx context.Context) (out []string, err error) {
	given, err := a.kubelet.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range given {
		claims := func(c podresources.Container) bool {
			return slices.ContainsFunc(c.Claims, func(cl podresources.Claim) bool {
				return slices.Contains(cl.Drivers, dra.DriverName)
			})
		}
		if !slices.ContainsFunc(given[i].Containers, claims) {
			continue
		}
		name := given[i].Namespace + "/" + given[i].Name
		out = append(out, name)
		if pod := a.cluster.Pods()[name]; pod != nil {
			a.cluster.Event(ctx, "Pod", pod.Namespace, pod.Name, string(pod.UID), events.LaneRemoved,
				"niclane leaves the node, and the pod goes on without its lane. "+needsDriver)
		}
	}
	slices.Sort(out)
	return out, nil
}

// removedStatus returns the status of a LaneNode that wants niclane removed.
func (a *Agent) removedStatus(old []metav1.Condition) *v1alpha1.LaneNodeStatus {
	generation, reason, message := a.removal.condition(a.o.CNIInstall)
	c := kube.Condition(old, v1alpha1.Removed, reason == v1alpha1.ReasonNodeIsClean, reason, message)
	c.ObservedGeneration = generation
	return &v1alpha1.LaneNodeStatus{Agent: a.o.Version, Renewed: metav1.Now(), Conditions: []metav1.Condition{c}}
}

// sweepFiles removes, at the agent's end, the directories and caches that only a working agent
// needs. If niclane's commands have lanes on the node, their files stay.
func (a *Agent) sweepFiles() {
	if !a.removal.done() {
		return
	}
	_ = cni.RemovePods(a.o.Socket)
	for _, dir := range []string{a.o.StateDir, a.o.RunDir} {
		_ = os.Remove(filepath.Join(dir, "kubernetes")) // stays if it is not empty
	}
	if own, err := filepath.Glob(filepath.Join(a.o.StateDir, "*.journal")); err != nil || len(own) > 0 {
		return
	}
	caches, _ := filepath.Glob(filepath.Join(a.o.RunDir, "*.json"))
	for _, path := range caches {
		_ = os.Remove(path)
	}
}

// removeAgain is the time between two attempts to remove what could not be removed.
const removeAgain = 5 * time.Second

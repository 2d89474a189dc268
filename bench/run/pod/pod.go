// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Wanted is the pod for one start of a server.
type Wanted struct {
	// Manifest is the manifest of the pod, from experiment.ParsePod.
	Manifest map[string]any
	// Limits are resource limits of the first container, in addition to the manifest's: amounts by
	// resource.
	Limits map[string]string
	// Run is the value of the label that the pod gets.
	Run string
	// Patience is how long the pod may wait for a node: the resources of the previous pod may
	// take a moment to be free. 0: 15 seconds.
	Patience time.Duration
	// Longest is how long the pod may live; 0: no limit.
	Longest time.Duration
}

// A Pod is a pod that Start has created. It exists until Delete.
type Pod struct {
	k               Kubectl
	patience        time.Duration
	namespace, name string // namespace "": that of kubectl's context
	cancel          context.CancelFunc
	watched         chan struct{} // closed when the watch has ended

	mu      sync.Mutex
	last    object
	trouble error         // error of the watch
	changed chan struct{} // closed at the next change
	done    chan struct{} // closed when the pod has ended
	end     error         // how it ended, once done
}

// Start creates the pod and does not wait until it is ready. If Start returns a pod, the caller must
// delete it, even after an error: the pod may exist nevertheless.
func Start(ctx context.Context, k Kubectl, w Wanted) (*Pod, error) {
	// Names of Kubernetes objects have lower case letters and digits.
	manifest, err := grown(w.Manifest, w, strings.ToLower(rand.Text()[:6]))
	if err != nil {
		return nil, err
	}
	p := &Pod{k: k, patience: cmp.Or(w.Patience, patience), changed: make(chan struct{}), done: make(chan struct{}),
		watched: make(chan struct{})}
	var made object
	if err := json.Unmarshal(manifest, &made); err != nil {
		return nil, err
	}
	p.namespace, p.name = made.Metadata.Namespace, made.Metadata.Name
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	out, err := k.call(ctx, manifest, "create", "--filename=-", "--output=json")
	if err == nil {
		err = json.Unmarshal(out, &p.last)
	}
	if err != nil {
		close(p.watched)
		return p, fmt.Errorf("%s: %w", p.Name(), err)
	}
	p.namespace = p.last.Metadata.Namespace
	go p.watch(watching)
	return p, nil
}

// Name returns the pod's name, with its namespace if known.
func (p *Pod) Name() string {
	if p.namespace == "" {
		return "pod " + p.name
	}
	return "pod " + p.namespace + "/" + p.name
}

// of returns args, with the pod's namespace as a further argument of kubectl.
func (p *Pod) of(args ...string) []string {
	if p.namespace != "" {
		args = append(args, "--namespace="+p.namespace)
	}
	return args
}

const patience = 15 * time.Second

// Ready waits until the pod is ready and has an address. An error describes the pod's state and
// the last event about it.
func (p *Pod) Ready(ctx context.Context) error {
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	late := false
	for {
		p.mu.Lock()
		ready, why, changed := p.last.ready(), p.last.unschedulable(), p.changed
		p.mu.Unlock()
		switch {
		case p.Ended() != nil:
			return p.Ended()
		case ready:
			return nil
		case why != "" && late:
			return p.because(errors.New("no node takes it"))
		}
		select {
		case <-changed:
		case <-p.done:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return p.because(fmt.Errorf("not ready: %w", context.Cause(ctx)))
		}
	}
}

// Address returns the pod's address; "": it has none yet.
func (p *Pod) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.Status.PodIP
}

// Server returns the image that runs, and its node.
func (p *Pod) Server() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.server()
}

// Over returns a channel that is closed when the pod has ended.
func (p *Pod) Over() <-chan struct{} { return p.done }

// Ended returns nil while the pod runs, and then how it ended.
func (p *Pod) Ended() error {
	select {
	case <-p.done:
		return p.end
	default:
		return nil
	}
}

// deleteTime is how long a pod may take to end.
const deleteTime = 90 * time.Second

// Delete deletes the pod and waits until it is gone. A pod that does not exist is no error.
func (p *Pod) Delete(ctx context.Context) error {
	p.cancel()
	<-p.watched
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTime, fmt.Errorf("it is not gone after %v", deleteTime))
	defer cancel()
	_, err := p.k.run(ctx, nil, p.of("delete", "pod", p.name, "--ignore-not-found", "--wait")...)
	if err != nil {
		return fmt.Errorf("%s: %w; to delete it: kubectl %s", p.Name(), err,
			strings.Join(p.of("delete", "pod", p.name), " "))
	}
	return nil
}

// Log returns the last output of the pod's containers.
func (p *Pod) Log(ctx context.Context) (string, error) {
	out, err := p.k.call(ctx, nil, p.of("logs", p.name, "--all-containers", "--tail=200")...)
	return string(out), err
}

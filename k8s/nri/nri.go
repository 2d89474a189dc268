// SPDX-License-Identifier: Apache-2.0

// Package nri has the container runtime tell the agent of pods by its Node Resource
// Interface (NRI, github.com/containerd/nri), where niclane-cni is not chained behind
// the CNI plugins. RunPodSandbox is what ADD is there, StopPodSandbox DEL, and
// Synchronize, at each connection, garbage collection.
//
// The runtime makes one request at a time, of all pods, and takes a plugin that has not
// answered in its time for broken: it goes on without it. So each request is answered
// in a part of that time, and a pod without a lane is let through before any. Nothing
// of a container is changed: two agents of one node, while one is replaced, change no
// other than one does.
package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/cni"
)

// DefaultSocket is containerd's and CRI-O's.
const DefaultSocket = "/var/run/nri/nri.sock"

// Lanes is what the plugin asks of the agent.
type Lanes interface {
	// Handle is that of attach.Attacher.
	Handle(ctx context.Context, r *cni.Request, early func()) cni.Answer
	// Asks reports whether a pod is known to ask for a lane.
	Asks(namespace, name, uid string) bool
	// Attachments are the pods that are in lanes, Keep takes those out for which
	// still is false.
	Attachments() []lanes.Attachment
	Keep(ctx context.Context, still func(lanes.Attachment) bool) error
}

// Options of a Plugin. All of them are needed.
type Options struct {
	// Socket of the runtime.
	Socket string
	Lanes  Lanes
	// Bandwidth: the annotations kubernetes.io/ingress-bandwidth and
	// egress-bandwidth are honoured, and not left to the CNI plugin bandwidth.
	Bandwidth bool
	// Runtime is the node's, as Kubernetes has it: "containerd://2.3.7"; "" if that
	// is not known.
	Runtime func() string
	// Connected is told that the runtime is connected, and which pods it has is known.
	// Failing, that it is not, since when and why, after each attempt. Neither may
	// block.
	Connected func()
	Failing   func(since time.Time, err error)
	Log       *slog.Logger
}

// A Plugin of the runtime's.
type Plugin struct{ o Options }

// New makes a plugin. Nothing is connected before Run.
func New(o Options) *Plugin { return &Plugin{o} }

// Times between attempts to connect. Pods that start between the runtime's start and
// the connection are not in their lanes until then, so that the last is short.
const (
	againFirst = 50 * time.Millisecond
	againLast  = time.Second
)

// Run is connected to the runtime until ctx ends, again whenever that has gone.
func (p *Plugin) Run(ctx context.Context) error {
	wait, since, said := againFirst, time.Now(), ""
	for {
		began := time.Now()
		connected, err := p.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if connected {
			since, said = time.Now(), ""
		}
		if time.Since(began) > againLast {
			wait = againFirst
		}
		if said != err.Error() {
			said = err.Error()
			p.o.Log.Warn("NRI", "error", err)
		}
		p.o.Failing(since, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, againLast)
	}
}

// errLost says that a connection has ended, which is what a runtime's end is.
var errLost = errors.New("the runtime has ended the connection")

// advice is what helps where nobody listens.
func (p *Plugin) advice() string {
	const without = "leave nri.enabled out there, and cni.enabled in"
	var major, minor int
	runtime := p.o.Runtime()
	switch n, _ := fmt.Sscanf(runtime, "containerd://%d.%d", &major, &minor); {
	case n == 2 && major < 2 && minor < 7:
		return fmt.Sprintf("this node's %s has no NRI, which comes with containerd 2: %s", runtime, without)
	case n == 2 && major < 2:
		return fmt.Sprintf("this node's %s does not say the addresses of pods by NRI, and has it off: it takes "+
			"containerd 2; %s", runtime, without)
	case runtime == "":
		return "NRI comes with containerd 2"
	}
	return fmt.Sprintf("is NRI on in the configuration of this node's %s?", runtime)
}

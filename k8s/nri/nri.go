// SPDX-License-Identifier: Apache-2.0

// Package nri lets the container runtime report pods to the agent by its Node Resource Interface
// (NRI, github.com/containerd/nri). It is for nodes on which niclane-cni is not one of the CNI
// plugins. RunPodSandbox corresponds to CNI's ADD, StopPodSandbox to DEL, and Synchronize, at each
// connection, to GC.
//
// The runtime makes one request at a time for all pods, and disconnects a plugin that does not
// answer in time. The plugin therefore answers after three quarters of this time at the latest. If
// it does not know after a quarter whether a pod has a lane, it lets the pod start unless the pod
// asks for a lane. The plugin changes nothing in containers, so two agents on one node during an
// update do not conflict.
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

// DefaultSocket is the path of the NRI socket of containerd and CRI-O.
const DefaultSocket = "/var/run/nri/nri.sock"

// Lanes has the agent's functions that the plugin needs.
type Lanes interface {
	// Handle does what a request asks, as attach.Attacher.Handle does.
	Handle(ctx context.Context, r *cni.Request, early func()) cni.Answer
	// Asks reports whether the agent knows that a pod asks for a lane.
	Asks(namespace, name, uid string) bool
	// Attachments returns the pods in lanes. Keep removes the pods for which still returns false.
	Attachments() []lanes.Attachment
	Keep(ctx context.Context, still func(lanes.Attachment) bool) error
}

// Options of a Plugin. All are required.
type Options struct {
	// Socket is the path of the runtime's NRI socket.
	Socket string
	Lanes  Lanes
	// Bandwidth makes the agent apply the annotations kubernetes.io/ingress-bandwidth and
	// egress-bandwidth. It must be false if the CNI plugin bandwidth applies them.
	Bandwidth bool
	// Runtime returns the name and version of the node's runtime, for example "containerd://2.3.7". It
	// returns "" if they are not known.
	Runtime func() string
	// Connected is called when the runtime is connected and its pods are known. Failing is called
	// after each failed attempt to connect, with the reason and the time since which the plugin is not
	// connected. The two functions must not block.
	Connected func()
	Failing   func(since time.Time, err error)
	Log       *slog.Logger
}

// A Plugin is the agent's NRI plugin, to which the runtime reports pods.
type Plugin struct{ o Options }

// New returns a plugin. It does not connect before Run.
func New(o Options) *Plugin { return &Plugin{o} }

// The time between two attempts to connect doubles from againFirst to againLast. Pods that start
// before the connection are not in their lanes yet, so againLast is short.
const (
	againFirst = 50 * time.Millisecond
	againLast  = time.Second
)

// Run keeps a connection to the runtime until ctx ends, and connects again when it ends.
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

// errLost says that a connection has ended, for example because the runtime was stopped.
var errLost = errors.New("the runtime has ended the connection")

// advice returns a text that says what to do if no runtime listens on the socket. It depends on the
// runtime's version.
func (p *Plugin) advice() string {
	const without = "set nri.enabled=false and cni.enabled=true there"
	var major, minor int
	runtime := p.o.Runtime()
	switch n, _ := fmt.Sscanf(runtime, "containerd://%d.%d", &major, &minor); {
	case n == 2 && major < 2 && minor < 7:
		return fmt.Sprintf("this node's %s has no NRI, which comes with containerd 2: %s", runtime, without)
	case n == 2 && major < 2:
		return fmt.Sprintf("this node's %s has NRI off, and does not report the addresses of pods by it: "+
			"containerd 2 is needed; %s", runtime, without)
	case runtime == "":
		return "NRI comes with containerd 2"
	}
	return fmt.Sprintf("is NRI on in the configuration of this node's %s?", runtime)
}

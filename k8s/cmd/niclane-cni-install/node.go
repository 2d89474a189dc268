// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/niclane/niclane/internal/atomicfile"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/cni/chain"
)

// A node is where niclane-cni is installed.
type node struct {
	program, installed string // paths of the plugin: in the image, on the node
	dir                string // of the node's network configuration
	status             bool   // as in chain.Add
	agent              string // the agent's socket
	log                *slog.Logger
	asks               time.Duration // between two questions to the agent
	// firstAnswer is how long follow waits for an agent before it installs niclane-cni without one.
	firstAnswer time.Duration

	removed bool   // niclane-cni is not on the node
	problem string // why niclane-cni cannot be removed
}

const patience = 2 * time.Second // for an answer of the agent

// follow keeps niclane-cni installed, or removed while the agent says so, until ctx ends. While the
// agent does not answer, it goes on with the last answer.
func (n *node) follow(ctx context.Context) error {
	tick := time.NewTicker(n.asks)
	defer tick.Stop()
	begun, stop := time.Now(), func() {}
	var kept chan error // nil: niclane-cni is not kept in the list
	for {
		remove, err := cni.AskRemove(ctx, n.agent, n.removed, n.problem, patience)
		silent := err != nil && time.Since(begun) < n.firstAnswer
		switch {
		case err == nil && remove:
			if kept != nil {
				stop()
				<-kept // an error ends Keep too, and does not matter any more
				kept = nil
			}
			n.obey()
		case kept == nil && !silent && (err == nil || !n.removed && n.problem == ""):
			if err := n.install(); err != nil {
				return err
			}
			keep, cancel := context.WithCancel(ctx)
			kept, stop = make(chan error, 1), cancel
			go func() { kept <- chain.Keep(keep, n.dir, n.status, n.log, n.tell) }()
		}
		select {
		case <-ctx.Done():
			if stop(); kept != nil {
				return <-kept
			}
			return nil
		case err := <-kept:
			stop()
			return err
		case <-tick.C:
		}
	}
}

func (n *node) install() error {
	text, err := os.ReadFile(n.program)
	if err != nil {
		return err
	}
	n.removed, n.problem = false, ""
	return atomicfile.Write(n.installed, text, 0o755)
}

// obey removes niclane-cni, and notes the result for the agent.
func (n *node) obey() {
	was := *n
	n.removed, n.problem = true, ""
	if err := n.remove(); err != nil {
		n.removed, n.problem = false, err.Error()
	}
	if was.removed != n.removed || was.problem != n.problem {
		n.log.Info("the agent wants niclane-cni removed", "removed", n.removed, "problem", n.problem)
	}
}

// remove removes niclane-cni. The entry in the list goes first, because pods fail if a listed plugin
// does not exist.
func (n *node) remove() error {
	if err := chain.Undo(n.dir); err != nil {
		return err
	}
	if err := os.Remove(n.installed); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// tell reports to the agent why niclane-cni cannot be chained. The agent sends an event about the
// node.
func (n *node) tell(ctx context.Context, why error) error {
	_, err := cni.Call(ctx, n.agent, cni.Request{Command: cni.Unchained, Reason: why.Error()}, patience)
	return err
}

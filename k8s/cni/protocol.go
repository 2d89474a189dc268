// SPDX-License-Identifier: Apache-2.0

// Package cni is the protocol between niclane-cni (the plugin) and niclane-agent, over a Unix
// socket that only root can reach. The plugin sends one request. The agent may first send an early
// answer, which says that the pod has a lane. It then sends the final answer. Each message is one
// JSON document on one line, of at most MaxBytes. Unknown fields are refused.
package cni

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/niclane/niclane/internal/few"
	"github.com/niclane/niclane/k8s/api/params"
)

// DefaultSocket is the default path of the agent's socket.
const DefaultSocket = "/run/niclane/cni.sock"

// Version is the version of the protocol. The plugin and the agent may be of different releases.
const Version = 1

// MaxBytes is the size of the largest message. The largest is a GC request, which names every
// attachment of the node.
const MaxBytes = 1 << 20

// Commands.
const (
	Add    = "ADD"
	Del    = "DEL"
	Check  = "CHECK"
	GC     = "GC"
	Status = "STATUS"
	// Unchained comes from niclane-cni-install. It says that niclane-cni cannot be chained into the
	// node's pod network. The request's field Reason says why.
	Unchained = "UNCHAINED"
	// Installer comes from niclane-cni-install, which says whether it has removed niclane-cni. The
	// answer says whether it must be removed.
	Installer = "INSTALLER"
)

// A Request is what the runtime asked the plugin to do.
type Request struct {
	Version int    `json:"version"`
	Command string `json:"command"`
	// Sandbox is the runtime's ID of the pod's sandbox (CNI_CONTAINERID).
	Sandbox string `json:"sandbox,omitempty"`
	IfName  string `json:"ifname,omitempty"`
	// Network is the name of the network configuration that calls the plugin.
	Network string `json:"network,omitempty"`
	// HostIf is the name of the host's end of the pod's interface, "" if not known.
	HostIf string `json:"hostIf,omitempty"`
	// Namespace, Pod (its name) and UID identify the pod, as the runtime gives them.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Addrs are the pod's addresses on this interface, IPv4 and IPv6.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// IngressRate and EgressRate are the rates from the pod's annotations
	// kubernetes.io/ingress-bandwidth and egress-bandwidth, in bit/s. 0 means no annotation.
	IngressRate uint64 `json:"ingressRate,omitempty"`
	EgressRate  uint64 `json:"egressRate,omitempty"`
	// Valid are the attachments of the network that the runtime knows. Only GC has it.
	Valid []Attachment `json:"valid,omitempty"`
	// Reason says why niclane-cni cannot be chained (Unchained), or why it cannot be removed
	// (Installer).
	Reason string `json:"reason,omitempty"`
	// Removed says that niclane-cni is not on the node any more. Only Installer has it.
	Removed bool `json:"removed,omitempty"`
}

// An Attachment is an interface of a pod's sandbox.
type Attachment struct {
	Sandbox string `json:"sandbox"`
	IfName  string `json:"ifname"`
}

// An Answer is the early answer to a request (Pending is true) or the final answer.
type Answer struct {
	// Lane says that the pod has a lane.
	Lane bool `json:"lane"`
	// Pending says that this is the early answer. The final answer follows.
	Pending bool `json:"pending,omitempty"`
	// Error says why the request failed, "" if it succeeded.
	Error string `json:"error,omitempty"`
	// Remove says that niclane-cni must be removed from the node. Only the answer to Installer has it.
	Remove bool `json:"remove,omitempty"`
}

// Decode reads a request. It returns an error for unknown fields, and for fields that are missing.
func Decode(raw []byte) (*Request, error) {
	r := &Request{}
	if err := strict(raw, r); err != nil {
		return nil, err
	}
	if r.Version != Version {
		return nil, fmt.Errorf("version %d of the protocol, this niclane-agent knows %d: niclane-cni on this node "+
			"is of another release", r.Version, Version)
	}
	switch r.Command {
	case Add, Check:
		if r.Pod == "" || r.Namespace == "" || r.UID == "" {
			return nil, fmt.Errorf("%s without the pod's namespace, name and UID", r.Command)
		}
		fallthrough
	case Del:
		if r.Sandbox == "" || r.IfName == "" {
			return nil, fmt.Errorf("%s without sandbox or ifname", r.Command)
		}
	case Unchained:
		if r.Reason == "" {
			return nil, fmt.Errorf("%s without reason", r.Command)
		}
	case GC, Status, Installer:
	default:
		return nil, fmt.Errorf("unknown command %q", r.Command)
	}
	return r, nil
}

func strict(raw []byte, v any) error { return params.StrictUpTo(raw, v, MaxBytes) }

// ErrNoAgent says that no agent answers on the socket.
var ErrNoAgent = errors.New("niclane-agent does not answer")

// Call sends a request to the agent and returns its answer. It waits for the first answer no longer
// than first, and for the final answer no longer than ctx. lane says that the pod has a lane, also
// if the final answer does not come. After ErrNoAgent, it is not known whether the pod has a lane.
func Call(ctx context.Context, socket string, r Request, first time.Duration) (lane bool, err error) {
	a, err := exchange(ctx, socket, r, first)
	return a.Lane, err
}

// AskRemove tells the agent whether niclane-cni is removed from the node, or why it cannot be
// (reason). It returns whether niclane-cni must be removed.
func AskRemove(ctx context.Context, socket string, removed bool, reason string,
	patience time.Duration) (remove bool, err error) {
	a, err := exchange(ctx, socket, Request{Command: Installer, Removed: removed, Reason: reason}, patience)
	return a.Remove, err
}

// exchange sends a request and returns the final answer. After an error, the answer has what is
// known.
func exchange(ctx context.Context, socket string, r Request, first time.Duration) (Answer, error) {
	r.Version = Version
	out, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	d := net.Dialer{Timeout: first}
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(first))
	if _, err := c.Write(append(out, '\n')); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	in := bufio.NewReader(io.LimitReader(c, 2*MaxBytes))
	a, err := answer(in)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	if a.Pending {
		deadline, _ := ctx.Deadline()
		_ = c.SetDeadline(deadline)
		lane := a.Lane
		if a, err = answer(in); err != nil {
			return Answer{Lane: lane}, fmt.Errorf("niclane-agent has not reported the result: %w", err)
		}
	}
	if a.Error != "" {
		return *a, errors.New(a.Error)
	}
	return *a, nil
}

func answer(in *bufio.Reader) (*Answer, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	return a, strict(line, a)
}

// A Handler does what a request asks, and returns the final answer. Before, it may call early once,
// which sends the early answer: the pod has a lane, and the final answer may take longer.
type Handler func(ctx context.Context, r *Request, early func()) Answer

// most is the largest number of clients that have connected but not sent their request yet. It is
// larger than the number of pods that a node starts at the same time. At most 4 times as many
// clients may have a request that is not answered yet.
const most = 256

// readTime is the longest time that a client may take to send its request.
const readTime = 2 * time.Second

// Serve answers requests on a listener until ctx ends. The Handler gets at most the time doing for
// each request.
func Serve(ctx context.Context, l net.Listener, doing time.Duration, h Handler) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	l = few.Listen(l, most, 4*most)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go serve(ctx, c, doing, h)
	}
}

func serve(ctx context.Context, c net.Conn, doing time.Duration, h Handler) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(readTime))
	line, err := bufio.NewReader(io.LimitReader(c, MaxBytes)).ReadBytes('\n')
	if err != nil {
		return
	}
	few.Heard(c)
	_ = c.SetDeadline(time.Now().Add(doing + readTime))
	say := func(a Answer) {
		if b, err := json.Marshal(a); err == nil {
			_, _ = c.Write(append(b, '\n')) // an error means that the client has gone
		}
	}
	r, err := Decode(line)
	if err != nil {
		say(Answer{Error: "request: " + err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doing)
	defer cancel()
	say(h(ctx, r, func() { say(Answer{Lane: true, Pending: true}) }))
}

// Listen creates the socket. Only root can connect to it; its directory must be for root only too.
// Listen replaces the socket of an agent that has ended.
func Listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// PodOf reads the pod from the environment variable CNI_ARGS. Missing values are "".
func PodOf(args string) (namespace, name, uid string) {
	for kv := range strings.SplitSeq(args, ";") {
		switch k, v, _ := strings.Cut(kv, "="); k {
		case "K8S_POD_NAMESPACE":
			namespace = v
		case "K8S_POD_NAME":
			name = v
		case "K8S_POD_UID":
			uid = v
		}
	}
	return namespace, name, uid
}

// SPDX-License-Identifier: Apache-2.0

// Package cni is the protocol between niclane-cni and niclane-agent over a Unix socket that
// only root can reach. The plugin sends one request. The agent may send an early answer,
// which says that the pod has a lane, and then sends the last one. Each message is one JSON
// document on a line, limited to MaxBytes. Unknown fields are refused.
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

// DefaultSocket is the agent's socket.
const DefaultSocket = "/run/niclane/cni.sock"

// Version of the protocol. The plugin's binary may be older than the agent.
const Version = 1

// MaxBytes is the largest message. A GC request names every attachment of the node.
const MaxBytes = 1 << 20

// Commands.
const (
	Add    = "ADD"
	Del    = "DEL"
	Check  = "CHECK"
	GC     = "GC"
	Status = "STATUS"
	// Unchained is sent by niclane-cni-install: niclane-cni cannot be chained into the node's
	// pod network, for Reason.
	Unchained = "UNCHAINED"
)

// A Request is what the runtime asked the plugin to do.
type Request struct {
	Version int    `json:"version"`
	Command string `json:"command"`
	// Sandbox is the runtime's ID of the pod's sandbox (CNI_CONTAINERID).
	Sandbox string `json:"sandbox,omitempty"`
	IfName  string `json:"ifname,omitempty"`
	// HostIf is the host's end of the pod's interface, from prevResult.
	HostIf string `json:"hostIf,omitempty"`
	// Namespace, Pod and UID of the pod, as the runtime gives them.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Addrs of the pod on this interface, IPv4 and IPv6.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// IngressRate and EgressRate are from the standard annotations, in bit/s; 0: none.
	IngressRate uint64 `json:"ingressRate,omitempty"`
	EgressRate  uint64 `json:"egressRate,omitempty"`
	// Valid are the attachments that the runtime knows, for GC.
	Valid []Attachment `json:"valid,omitempty"`
	// Reason is why niclane-cni cannot be chained, for Unchained.
	Reason string `json:"reason,omitempty"`
}

// An Attachment is an interface of a sandbox.
type Attachment struct {
	Sandbox string `json:"sandbox"`
	IfName  string `json:"ifname"`
}

// An Answer is an early answer (Pending) or the last one.
type Answer struct {
	// Lane says that the pod has a lane.
	Lane bool `json:"lane"`
	// Pending says that another answer follows when the request is done.
	Pending bool `json:"pending,omitempty"`
	// Error is why the request failed, "" if it did not.
	Error string `json:"error,omitempty"`
}

// Decode reads a request, and refuses unknown fields and incomplete requests.
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
	case GC, Status:
	default:
		return nil, fmt.Errorf("unknown command %q", r.Command)
	}
	return r, nil
}

func strict(raw []byte, v any) error { return params.StrictUpTo(raw, v, MaxBytes) }

// ErrNoAgent says that no agent answers on the socket.
var ErrNoAgent = errors.New("niclane-agent does not answer")

// Call asks the agent. first is the most time to the first answer; ctx limits the whole call.
// If the error is ErrNoAgent, it is not known whether the pod has a lane. If an early answer
// came, lane has its value.
func Call(ctx context.Context, socket string, r Request, first time.Duration) (lane bool, err error) {
	r.Version = Version
	out, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	d := net.Dialer{Timeout: first}
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(first))
	if _, err := c.Write(append(out, '\n')); err != nil {
		return false, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	in := bufio.NewReader(io.LimitReader(c, 2*MaxBytes))
	a, err := answer(in)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	if a.Pending {
		deadline, _ := ctx.Deadline()
		_ = c.SetDeadline(deadline)
		lane := a.Lane
		if a, err = answer(in); err != nil {
			return lane, fmt.Errorf("niclane-agent has not reported the result: %w", err)
		}
	}
	if a.Error != "" {
		return a.Lane, errors.New(a.Error)
	}
	return a.Lane, nil
}

func answer(in *bufio.Reader) (*Answer, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	return a, strict(line, a)
}

// A Handler does what a request asks. It may call early once before it returns, to tell the
// plugin that the pod has a lane and that the request may take longer than the time to the
// first answer.
type Handler func(ctx context.Context, r *Request, early func()) Answer

// most is the most clients that have not sent their request yet: more than a node starts pods
// at once. Requests at one time are limited to 4 times most.
const most = 256

// readTime is the most time that a client may take to send its request.
const readTime = 2 * time.Second

// Serve answers on a listener until ctx ends. doing is the most time for one request.
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
			_, _ = c.Write(append(b, '\n')) // the client has gone
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

// Listen creates the socket for root only. Its directory must be for root only too. It
// replaces the socket of an agent that has ended.
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

// PodOf returns the pod from CNI_ARGS; missing values are "".
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

// SPDX-License-Identifier: Apache-2.0

// Package podresources asks kubelet, on its Unix socket, which devices and claims
// the containers of its pods have. It needs no token, no certificate and no
// permission in the cluster. It carries neither a gRPC stack nor net/http with its
// TLS, which cost niclane-cni, a process for every pod that starts, half a
// millisecond each time: it speaks as much of HTTP/2 as one call takes.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// DefaultSocket is kubelet's.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// maxAnswer bounds an answer; kubelet's own client takes 16 MiB.
const maxAnswer = 16 << 20

// A Pod is what kubelet has given to a pod.
type Pod struct {
	Namespace, Name string
	Containers      []Container
}

// A Container of a pod.
type Container struct {
	Name    string
	Devices []Devices
	Claims  []Claim
}

// Devices of one extended resource.
type Devices struct {
	Resource string
	IDs      []string
}

// A Claim that a container uses.
type Claim struct {
	Namespace, Name string
	// Drivers of the devices that it has.
	Drivers []string
}

// A Client asks one kubelet.
type Client struct{ socket string }

// New makes a client. Nothing is asked yet.
func New(socket string) *Client { return &Client{socket} }

// An AnswerError is kubelet's refusal.
type AnswerError struct{ Code, Message string }

// Error implements error.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("kubelet: %s (gRPC status %s)", e.Message, e.Code)
}

// Get returns what a pod has, nil if kubelet knows no such pod. Where kubelet does
// not serve Get (before Kubernetes 1.34 it may be off), it lists all.
func (c *Client) Get(ctx context.Context, namespace, name string) (*Pod, error) {
	var in []byte
	in = appendString(in, 1, name)
	in = appendString(in, 2, namespace)
	out, err := c.call(ctx, "/v1.PodResourcesLister/Get", in)
	var refused *AnswerError
	if errors.As(err, &refused) && refused.Code != exhausted {
		all, err := c.List(ctx)
		for i := range all {
			if all[i].Namespace == namespace && all[i].Name == name {
				return &all[i], nil
			}
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	pods, err := decodePods(out)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return &pods[0], nil
}

// List returns what all pods have.
func (c *Client) List(ctx context.Context) ([]Pod, error) {
	out, err := c.call(ctx, "/v1.PodResourcesLister/List", nil)
	if err != nil {
		return nil, err
	}
	return decodePods(out)
}

// Kubelet answers 100 calls a second, of all who ask, and refuses the others
// (pkg/kubelet/apis/grpc/ratelimit.go): those are made again.
const (
	exhausted = "8" // google.golang.org/grpc/codes: ResourceExhausted
	againIn   = 10 * time.Millisecond
)

// call makes a unary call, as often as kubelet has no time for it.
func (c *Client) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	for {
		out, err := c.once(ctx, method, in)
		var refused *AnswerError
		if !errors.As(err, &refused) || refused.Code != exhausted {
			return out, err
		}
		// those that were refused together do not come again together
		timer := time.NewTimer(againIn + rand.N(againIn))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

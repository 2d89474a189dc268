// SPDX-License-Identifier: Apache-2.0

// Package podresources asks kubelet, on its Unix socket, which devices and claims
// the containers of its pods have. It needs no token, no certificate and no
// permission in the cluster. It speaks gRPC by the standard library's HTTP/2, so
// that niclane-cni, which starts for every pod, does not carry a gRPC stack.
package podresources

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
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
type Client struct{ http *http.Client }

// New makes a client. Nothing is asked yet.
func New(socket string) *Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true, MaxIdleConns: 1,
		Protocols: new(http.Protocols),
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return &Client{&http.Client{Transport: t}}
}

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
	in = protowire.AppendTag(in, 1, protowire.BytesType)
	in = protowire.AppendString(in, name)
	in = protowire.AppendTag(in, 2, protowire.BytesType)
	in = protowire.AppendString(in, namespace)
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

// once makes a unary call: a frame of five bytes and a message, each way
// (gRPC over HTTP2, github.com/grpc/grpc doc/PROTOCOL-HTTP2.md).
func (c *Client) once(ctx context.Context, method string, in []byte) ([]byte, error) {
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(in)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kubelet"+method, bytes.NewReader(append(frame, in...)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("kubelet's pod resources: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("kubelet's pod resources: %w", err)
	}
	status, message := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" { // an answer without a body has its trailers in the header
		status, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	switch {
	case resp.StatusCode != http.StatusOK || status == "":
		return nil, fmt.Errorf("kubelet's pod resources: HTTP status %s, which is no gRPC answer", resp.Status)
	case status != "0":
		return nil, &AnswerError{status, message}
	case len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5:
		return nil, errors.New("kubelet's pod resources: not one whole message")
	}
	return body[5:], nil
}

// decodePods decodes ListPodResourcesResponse and GetPodResourcesResponse, whose
// field 1 are pods (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto).
func decodePods(b []byte) (out []Pod, err error) {
	err = fields(b, func(num protowire.Number, v []byte) error {
		if num != 1 {
			return nil
		}
		var p Pod
		out = append(out, p)
		return fields(v, out[len(out)-1].field)
	})
	return out, err
}

func (p *Pod) field(num protowire.Number, v []byte) error {
	switch num {
	case 1:
		p.Name = string(v)
	case 2:
		p.Namespace = string(v)
	case 3:
		p.Containers = append(p.Containers, Container{})
		return fields(v, p.Containers[len(p.Containers)-1].field)
	}
	return nil
}

func (c *Container) field(num protowire.Number, v []byte) error {
	switch num {
	case 1:
		c.Name = string(v)
	case 2:
		var d Devices
		err := fields(v, func(num protowire.Number, v []byte) error {
			switch num {
			case 1:
				d.Resource = string(v)
			case 2:
				d.IDs = append(d.IDs, string(v))
			}
			return nil
		})
		c.addDevices(d)
		return err
	case 5:
		var cl Claim
		err := fields(v, func(num protowire.Number, v []byte) error {
			switch num {
			case 2:
				cl.Name = string(v)
			case 3:
				cl.Namespace = string(v)
			case 4:
				return fields(v, func(num protowire.Number, v []byte) error {
					if num == 2 {
						cl.Drivers = append(cl.Drivers, string(v))
					}
					return nil
				})
			}
			return nil
		})
		c.Claims = append(c.Claims, cl)
		return err
	}
	return nil
}

// addDevices joins the devices of one resource: kubelet lists them by NUMA node.
func (c *Container) addDevices(d Devices) {
	for i := range c.Devices {
		if c.Devices[i].Resource == d.Resource {
			c.Devices[i].IDs = append(c.Devices[i].IDs, d.IDs...)
			return
		}
	}
	c.Devices = append(c.Devices, d)
}

// fields calls f for each field that has a length; others are passed over.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("kubelet's pod resources: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return fmt.Errorf("kubelet's pod resources: %w", protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("kubelet's pod resources: %w", protowire.ParseError(n))
		}
		if err := f(num, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
